"""The parent of workers and of processes that simulate: imports modules once, then forks a child for every request.

    python -m wanbench.workloads.process.forkserver FD PARENT_PID MODULE[,MODULE...] [--namespaces]

It imports every MODULE. Each child runs `serve_forked(socket, request)` of the first. With --namespaces it can make
namespaces, and has a PID namespace of its own (`workloads.process.isolation`).
The parent limits torch to one thread and never runs a torch operation, because the children of a parent that has run
one hang. When it dies, its children die too. When the controller dies, it ends too, and kills all that its children
left behind.
"""

import gc
import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from wanbench.workloads import imported
from wanbench.workloads.process import isolation
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.descendants import adopt_orphans
from wanbench.workloads.process.namespace import NamespaceError, become_namespace_root, die_with_parent, fork

_PID = struct.Struct("i")
_serving: dict[int, int] = {}  # the child that serves, by the child of this process


def main() -> None:
    """Serve `spawn` requests from the control socket until end of file."""
    end_descendants = adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    die_with_parent(int(sys.argv[2]), signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve_requests()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()


def _serve_requests() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        if sys.argv[4:] == ["--namespaces"]:
            become_namespace_root()  # one user namespace for all workers, so one emulator can join their networks
        imported.record()
        for name in sys.argv[3].split(","):  # children inherit every module
            import_module(name)
    except (NamespaceError, ImportError) as error:
        remedy = "; run `make setup`" if isinstance(error, ImportError) else ""
        channel.send({"error": f"the workers cannot start: {error}{remedy}"})
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.freeze()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    channel.send({"cmd": "ready", "pid": os.getpid()})
    while True:
        readable, _, _ = select.select([channel.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _report_exits(channel)
        if channel.fileno() in readable:
            try:
                request = channel.recv()
                if request is None:
                    return
                _spawn(channel, request, (wake_read, wake_write))
            except ControlError as error:
                sys.exit(str(error))


def _spawn(channel: Channel, request: dict[str, Any], wake: tuple[int, int]) -> None:
    if text(request, "cmd") != "spawn":
        raise ControlError(f"control channel: unknown command {request['cmd']!r}")
    fd = channel.take_fd()
    told, tell = os.pipe2(os.O_CLOEXEC)

    def serve() -> int:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        channel.close()
        for end in (*wake, told):
            os.close(end)
        return _serve(socket.socket(fileno=fd), request, tell)

    pid = fork(serve, os.getpid())
    os.close(fd)
    os.close(tell)
    number = os.read(told, _PID.size)
    os.close(told)
    _serving[pid] = _PID.unpack(number)[0] if number else pid
    channel.send({"cmd": "spawned", "pid": _serving[pid]})


def _serve(sock: socket.socket, request: dict[str, Any], tell: int) -> int:
    """Serve, in a PID namespace if there are namespaces, and print any error. Return the exit status."""

    def serve() -> int:
        os.close(tell)
        imported.record()  # apart from other children
        try:
            import_module(sys.argv[3].split(",")[0]).serve_forked(sock, request)
        except SystemExit:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
            return 1
        return 0

    if sys.argv[4:] != ["--namespaces"]:
        return serve()
    try:
        return isolation.run_inside(serve, lambda pid: os.write(tell, _PID.pack(pid)))
    except NamespaceError as error:
        Channel(sock).send({"error": str(error), "kind": type(error).__name__})
        return 1


def _report_exits(channel: Channel) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, code = ended[0], os.waitstatus_to_exitcode(ended[1])
            # A keeper exits as a shell does if its worker was killed.
            code = 128 - code if code - 128 in {*signal.Signals} else code
            channel.send({"cmd": "exited", "pid": _serving.pop(pid, pid), "code": code})


if __name__ == "__main__":
    main()
