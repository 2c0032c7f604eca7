"""Emulators by name, and which one `auto` means on this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.emulators.base import Emulator
from harness.errors import HostError

EMULATORS = ("relay", "netem")
_PACKAGES = Path(__file__).resolve().parents[2]
_DETECT_S = 30.0


def starter(name: str) -> Callable[[], Emulator]:
    """What starts an emulator; each call starts another one."""
    from harness.emulators.netem import NetemEmulator
    from harness.emulators.relay import RelayEmulator

    kinds: dict[str, Callable[[], Emulator]] = {"relay": RelayEmulator, "netem": NetemEmulator}
    return kinds[name]


def check(name: str) -> None:
    """Refuse in one line an emulator that this host cannot run. Raises: HostError."""
    missing = why_no_netem() if name == "netem" else why_no_relay()
    if missing is not None:
        raise HostError(missing)


def why_no_relay() -> str | None:
    """What the relay lacks on this host; None if it works."""
    device = Path("/dev/net/tun")
    if not device.exists():
        return f"{device}: not there; the relay emulator needs it: sudo modprobe tun"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device}: permission denied; run as root, or: sudo chmod 0666 {device}"
    return None


@cache
def why_no_netem() -> str | None:
    """What netem lacks on this host; None if it works. Tried once, in a child process with a network of its own."""
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-P", "-m", "harness.emulators.netem_detect"]
    try:
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=_DETECT_S
        )
    except subprocess.TimeoutExpired:
        return f"netem: it took more than {_DETECT_S:.0f} s to find out whether the kernel has it"
    if done.returncode:
        return f"netem: cannot find out whether the kernel has it: {done.stderr.strip().splitlines()[-1]}"
    return done.stdout.strip() or None


@cache
def chosen() -> tuple[str, str]:
    """What `emulator = "auto"` means here, and why in words."""
    missing = why_no_netem()
    return ("netem", "this kernel has it") if missing is None else ("relay", missing)
