"""Who has something: marks of a process, which outlive it, and locks, which the kernel drops when it ends.

A mark tells leftovers of a crashed run from things that a live run uses.
"""

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

FILE = "owner.json"


def mark() -> dict[str, Any]:
    """Return the mark of this process as plain data, which `is_gone` reads."""
    _, started = _status("self") or (None, None)
    return {"pid": os.getpid(), "started": started, "seen_from": _seen_from(), "clock": _namespace("time")}


def write_mark(folder: Path) -> None:
    """Mark a folder as this process's."""
    (folder / FILE).write_text(json.dumps(mark()))


def has_left(folder: Path) -> bool:
    """Whether the process that marked a folder has certainly ended. Of others' things there, such as a pipe, none is
    opened."""
    try:
        return stat.S_ISREG((folder / FILE).lstat().st_mode) and is_gone(json.loads((folder / FILE).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_gone(owner: Mapping[str, Any]) -> bool:
    """Whether the process with this mark has certainly ended.

    This is false for marks from another host, boot or PID namespace, where a PID names another process: a container, or
    a guest kernel on the same file system, cannot see whether their owner is alive. Start times, which reveal a reused
    PID, are compared only inside one time namespace, because each has its own boot time.

    Raises:
        KeyError, TypeError: the argument is not a mark.
    """
    if owner["seen_from"] != _seen_from():
        return False
    try:
        os.kill(owner["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # of another user
        pass
    seen = _status(owner["pid"])
    if seen is None:  # /proc hides it, or is that of another namespace
        return False
    state, started = seen
    return state in "ZX" or (owner.get("clock") == _namespace("time") and started != owner["started"])


def is_stopped(pid: int) -> bool:
    """Whether a signal stopped (suspended) a process; false if it runs or has ended."""
    status = _status(pid)
    return status is not None and status[0] == "T"


def locked(file: int | IO[Any], how: int) -> bool:
    """Whether an open file could be locked at once, `fcntl.LOCK_EX` or `LOCK_SH`; true if it is on one without locks.

    NFS locks a file exclusively only if it is open for writing, and shares the lock only if it is open for reading.
    """
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)  # else on a file system without locks
    return True


def _status(pid: int | str) -> tuple[str, int] | None:
    """The state of a process and its start time in ticks since boot; None if /proc does not show it.

    State Z is one that has ended and that its parent has not reaped.
    """
    try:
        if pid != "self" and os.readlink("/proc/self") != str(os.getpid()):
            return None
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])


def _seen_from() -> str:
    """The scope in which a PID names one process: a boot of a kernel, a PID namespace, and a host.

    Virtual machines that continue one snapshot have the boot in common, but not the name.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {_namespace('pid')} {os.uname().nodename}"


def _namespace(kind: str) -> str | None:
    """The namespace that this process is in; None if the kernel has none of this kind."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None
