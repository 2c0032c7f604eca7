"""Emulators by name, and which one `auto` means on this host."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.emulators.base import Emulator
from harness.errors import HostError
from harness.testbeds import adopted

EMULATORS = ("relay", "netem")


def starter(name: str) -> Callable[[], Emulator]:
    """What starts an emulator; each call starts another one."""
    from harness.emulators.relay import RelayEmulator

    return {"relay": RelayEmulator}[name]


def check(name: str, testbed: str) -> None:
    """Refuse in one line an emulator that this host cannot run for this testbed. Raises: HostError."""
    missing = {"relay": why_no_relay}[name](testbed)
    if missing is not None:
        raise HostError(missing)


def why_no_relay(testbed: str = "netns") -> str | None:
    """What the relay lacks on this host; None if it works. Containers get the device from their daemon."""
    device = Path("/dev/net/tun")
    if testbed == "docker" and adopted() is not None:
        return None
    if not device.exists():
        return f"{device}: not there; the relay emulator needs it: sudo modprobe tun"
    if testbed != "docker" and not os.access(device, os.R_OK | os.W_OK):
        return f"{device}: permission denied; run as root, or: sudo chmod 0666 {device}"
    return None


@cache
def chosen() -> tuple[str, str]:
    """What `emulator = "auto"` means here, and why in words."""
    return "relay", "the only one in this version"
