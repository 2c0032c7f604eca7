"""One emulation at a time on a host: others would disturb it.

Processes lock the time namespace that they are in. The kernel has it from the start, so nothing is created that
somebody could remove, replace or refuse to others. Every user can open it, and containers have it in common, also if
they share no files and have PID, network and user namespaces of their own, because container engines make none of this
kind. The kernel drops the lock when its holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wanbench.harness.errors import Interrupted
from wanbench.harness.process.owner import locked
from wanbench.harness.run.ending import stoppable

SWITCH = "WANBENCH_TURN"
_FIRST = 0xEFFFFFFA  # inode of the namespace that a kernel begins with: PROC_TIME_INIT_INO of its linux/proc_ns.h
_LOOK_S = 0.2


@contextmanager
def host_turn(say: Callable[[str], None]) -> Iterator[str]:
    """Wait until nobody else emulates on this host, and hold it.

    Args:
        say: prints one line, if this has to wait.

    Yields:
        What a row says of it: "alone"; "unknown" if others can emulate beside this: WANBENCH_TURN=off is in the
        environment, the kernel has no time namespaces (before Linux 5.6), or this process is not in the first one.

    Raises:
        Interrupted: Ctrl-C or SIGTERM while it waits.
    """
    try:
        host = os.open("/proc/self/ns/time", os.O_RDONLY) if os.environ.get(SWITCH) != "off" else None
    except OSError:
        host = None
    if host is None:
        yield "unknown"
        return
    try:
        if not locked(host, fcntl.LOCK_EX):
            with stoppable() as stopped:
                say("waiting: another wanbench emulates on this host; each would disturb the other")
                while not locked(host, fcntl.LOCK_EX):
                    if stopped.wait(_LOOK_S):
                        raise Interrupted("interrupted while waiting for the host; the same command continues")
        os.environ[SWITCH] = "off"  # what is started meanwhile, such as a program that runs wanbench, is part of this
        yield "alone" if os.fstat(host).st_ino == _FIRST else "unknown"
    finally:
        os.environ.pop(SWITCH, None)
        fcntl.flock(host, fcntl.LOCK_UN)  # a process that was forked meanwhile has a copy of the descriptor
        os.close(host)
