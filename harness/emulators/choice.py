"""The emulators by name, and the one that `auto` selects on this host."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

from wanbench.harness.errors import HostError
from wanbench.harness.process import child

Home = Literal["processes", "containers", "adopted"]  # what workers run in; adopted: containers started by others
_DETECT_S = 30.0


def check(name: str, home: Home) -> None:
    """Check that this host can run the emulator for such workers. Raises: HostError, if it cannot."""
    netem = name == "netem"
    missing = why_no_netem(home) if netem else why_no_relay(home)
    if missing is not None:
        raise HostError(f"{missing}; alternative: --emulator relay" if netem else missing)


def why_no_relay(home: Home = "processes") -> str | None:
    """Return what the relay lacks on this host, or None if it works. Containers get the device from their daemon."""
    device = Path("/dev/net/tun")
    if home == "adopted":
        return None
    if not device.exists():
        return f"{device}: does not exist; the relay emulator needs it: sudo modprobe tun"
    if home == "processes" and not os.access(device, os.R_OK | os.W_OK):
        return f"{device}: permission denied; run as root, or: sudo chmod 0666 {device}"
    return None


def why_no_netem(home: Home = "processes") -> str | None:
    """Return what netem lacks on this host, or None if it works."""
    if home == "adopted":
        return "netem: cannot enter the networks of containers that others started"
    if home == "containers" and os.geteuid() != 0:
        return "netem: only root can enter the networks of containers; run as root"
    return kernel_lacks()


@cache
def kernel_lacks() -> str | None:
    """Return what this kernel lacks for netem, or None. Tried once, in a child process with its own network."""
    command = child.command("wanbench.harness.emulators.netem.detect")
    try:
        done = subprocess.run(command, env=child.environment(), capture_output=True, text=True, timeout=_DETECT_S)
    except OSError as error:  # this user cannot start the interpreter again
        return f"netem: cannot check the kernel's support: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"netem: checking the kernel's support took more than {_DETECT_S:.0f} s"
    if done.returncode:
        return f"netem: cannot check the kernel's support: {done.stderr.strip().splitlines()[-1]}"
    return done.stdout.strip() or None


def chosen(home: Home = "processes") -> tuple[str, str]:
    """Return the emulator that `auto` selects here for such workers, and the reason."""
    missing = why_no_netem(home)
    return ("netem", "this kernel supports it") if missing is None else ("relay", missing)
