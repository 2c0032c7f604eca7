"""Emulators by name, and which one `auto` means on this host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from wanbench.harness.emulators.process import Emulator
from wanbench.harness.errors import HostError
from wanbench.harness.process import child

EMULATORS = ("relay", "netem")
Home = Literal["processes", "containers", "adopted"]  # what workers are; adopted: containers of somebody else
_DETECT_S = 30.0


def starter(name: str) -> Callable[[], Emulator]:
    """What starts an emulator; each call starts another one."""
    from wanbench.harness.emulators.netem.emulator import NetemEmulator
    from wanbench.harness.emulators.relay.emulator import RelayEmulator

    kinds: dict[str, Callable[[], Emulator]] = {"relay": RelayEmulator, "netem": NetemEmulator}
    return kinds[name]


def check(name: str, home: Home) -> None:
    """Refuse in one line an emulator that this host cannot run for such workers. Raises: HostError."""
    missing = why_no_netem(home) if name == "netem" else why_no_relay(home)
    if missing is not None:
        raise HostError(missing)


def why_no_relay(home: Home = "processes") -> str | None:
    """What the relay lacks on this host; None if it works. Containers get the device from their daemon."""
    device = Path("/dev/net/tun")
    if home == "adopted":
        return None
    if not device.exists():
        return f"{device}: not there; the relay emulator needs it: sudo modprobe tun"
    if home == "processes" and not os.access(device, os.R_OK | os.W_OK):
        return f"{device}: permission denied; run as root, or: sudo chmod 0666 {device}"
    return None


def why_no_netem(home: Home = "processes") -> str | None:
    """What netem lacks on this host; None if it works."""
    if home == "adopted":
        return "netem: nobody here may enter the networks of the other containers; use --emulator relay"
    if home == "containers" and os.geteuid() != 0:
        return "netem: only root may enter the networks of containers; run as root, or use --emulator relay"
    return kernel_lacks()


@cache
def kernel_lacks() -> str | None:
    """What this kernel lacks for netem, None if nothing. Tried once, in a child process with a network of its own."""
    command = child.command("wanbench.harness.emulators.netem.detect")
    try:
        done = subprocess.run(command, env=child.environment(), capture_output=True, text=True, timeout=_DETECT_S)
    except OSError as error:  # an interpreter that this user may not start again
        return f"netem: cannot find out whether the kernel has it: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"netem: it took more than {_DETECT_S:.0f} s to find out whether the kernel has it"
    if done.returncode:
        return f"netem: cannot find out whether the kernel has it: {done.stderr.strip().splitlines()[-1]}"
    return done.stdout.strip() or None


def chosen(home: Home = "processes") -> tuple[str, str]:
    """What `emulator = "auto"` means here for such workers, and why in words."""
    missing = why_no_netem(home)
    return ("netem", "this kernel has it") if missing is None else ("relay", missing)
