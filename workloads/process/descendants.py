"""End what a process started, even what left it: a program that forks twice and makes a session of its own.

The kernel gives such orphans to the nearest ancestor that asks for them, so they are found, and end with it. Workers on
an emulated network have more: a PID namespace each, whose processes the kernel ends itself (`isolation`).
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LOOK_S = 0.01
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> Callable[[], None]:
    """Become the parent of all orphans among the descendants of this process.

    Return a function that kills all descendants, except the children that this process has now, and adopts no more
    unless this process did before: a command can run in a process that has other children, such as a test's.
    """
    adopted = ctypes.c_int()
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopted), 0, 0, 0)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = frozenset(_children())

    def end() -> None:
        while children := [child for child in _children() if child not in before]:
            for child in children:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            # Never wait for one alone: process 1 of a namespace ends after all others in it, which can be ours too.
            for child in children:
                with suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)  # then its children are ours
            time.sleep(_LOOK_S)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, adopted.value, 0, 0, 0)

    return end


def _children() -> Iterator[int]:
    """The children of this process, whichever thread started them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                yield int(stat.parent.name)
