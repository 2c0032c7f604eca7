"""A worker is a machine: its own processes, host name, table of hosts and shared memory.

    fork server --- keeper --+-- process 1, which adopts processes whose parent has ended
                             +-- the worker, and the programs that it runs

The keeper is outside, and only waits. If any of the three ends, however it does, the kernel ends all processes inside.
Nothing has to be cleaned up: mounts, shared memory and names end with the processes.
"""

import ctypes
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from wanbench.workloads.process.namespace import NamespaceError, fork, unshare

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID = 0x00020000, 0x04000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_SLAVE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x80000
_SHARED_MEMORY = Path("/dev/shm")
_HOSTS = Path("/etc/hosts")
_TMP = Path("/tmp")

_libc = ctypes.CDLL(None, use_errno=True)
_inside = False  # this process has a PID namespace of its own


def run_inside(work: Callable[[], int], tell: Callable[[int], object]) -> int:
    """Run `work` in a child process with a PID namespace of its own. Return its exit status, 128 + n after signal n.

    By then no process of the namespace is left. Call this while the process has a single thread. It closes all files
    of the calling process except its outputs.

    Args:
        tell: gets the number that the child has outside.

    Raises:
        NamespaceError: the kernel refuses.
    """
    unshare(_CLONE_NEWPID, "new PID namespace")  # of children, the first of which is its process 1
    first = fork(_adopt_orphans)
    worker = fork(partial(_work_inside, work))
    tell(worker)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # so the controller sees the end of the worker's connection
    _, status = os.waitpid(worker, 0)
    os.kill(first, signal.SIGKILL)  # the kernel ends all others first
    os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _work_inside(work: Callable[[], int]) -> int:
    global _inside
    _inside = True
    return work()


def _adopt_orphans() -> NoReturn:
    """Be process 1: wait for processes whose parent has ended."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def enter(name: str, hosts: Mapping[str, str], private_tmp: Sequence[str] | None = None) -> None:
    """Give this process and its children a host name, a table of hosts and shared memory of their own.

    Call this with the rights of `namespace.enter_private_network`, while the process has a single thread.

    Args:
        name: of this host. hosts: the address of each name.
        private_tmp: folders that remain visible although this process gets an empty /tmp of its own; None: it does not.

    Raises:
        NamespaceError: the kernel refuses.
    """
    unshare(_CLONE_NEWNS | _CLONE_NEWUTS, "new mount and UTS namespaces")
    socket.sethostname(name)
    _mount("none", Path("/"), "", _MS_REC | _MS_SLAVE)  # what is mounted here stays here
    with suppress(NamespaceError):  # refused in a container, part of whose /proc is hidden
        _mount("proc", Path("/proc"), "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    table = _SHARED_MEMORY / "hosts"
    write_hosts(hosts, table)
    _mount(str(table), _HOSTS, "", _MS_BIND)
    table.unlink()  # it remains as /etc/hosts
    if private_tmp is not None:
        _hide_tmp([Path(folder) for folder in private_tmp])


def _hide_tmp(visible: Sequence[Path]) -> None:
    """Mount an empty /tmp in memory, and in it those of the visible folders that were there."""
    inside = [(folder, os.open(folder, os.O_PATH)) for folder in visible if _TMP in folder.parents]
    _mount("tmpfs", _TMP, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    for folder, descriptor in inside:
        folder.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", folder, "", _MS_BIND | _MS_REC)
        os.close(descriptor)


def write_hosts(hosts: Mapping[str, str], file: Path = _HOSTS) -> None:
    """Write a table of hosts from addresses by name. Raises: OSError."""
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
    file.write_text("\n".join(lines) + "\n")


def owns_processes() -> bool:
    """Whether this process has a PID namespace of its own, made here or, with this process as process 1, by Docker."""
    return _inside or os.getpid() == 1


def kill_programs() -> None:
    """Kill all other processes of this machine, and wait for those that are children of this process.

    Raises:
        RuntimeError: this process has no machine of its own, so it would kill everything.
    """
    if not owns_processes():
        raise RuntimeError("kill_programs: there is no machine around this process")
    with suppress(ProcessLookupError):
        while True:
            os.kill(-1, signal.SIGKILL)  # not process 1, and not this one
            with suppress(ChildProcessError):
                os.waitpid(-1, 0)


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    arguments = [text.encode() for text in (source, str(target), kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()) != 0:
        raise NamespaceError(f"mount on {target}: {os.strerror(ctypes.get_errno())}")
