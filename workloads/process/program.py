"""Run a user's program in a worker's network: start, watch, signal, count, kill and restart its processes.

Any program works. The request contains the environment that torchrun would set. If the program's rendezvous (torch's
TCPStore) is not to cross the emulated network, it is at 127.0.0.1 on every worker: each forwards the port to rank 0
through a door, which is one Unix socket.
"""

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from wanbench.workloads import imported
from wanbench.workloads.loop import stepping
from wanbench.workloads.process import agent, configuration, finished, heartbeat, isolation, namespace
from wanbench.workloads.process.control import Channel, ControlError, attend, dial, listen, text

_CHUNK = 1 << 16
_LOOK_S = 0.5
_DIAL_S = 600.0  # a program can take long to open its rendezvous
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


class ProgramError(ValueError):
    """A program cannot be started."""


def run(
    channel: Channel, request: dict[str, Any], counters: Callable[[], finished.Counters], look: Callable[[], None]
) -> None:
    """Run the processes of `request`, report the end of each, and return when all have ended.

    While they run, it obeys three commands: `signal` ("number"), after which nothing is started; `kill` ("again": True
    if `restart` will follow); and `restart`. If `kill` or `restart` has an effect, it answers "killed" or "restarted",
    with the "due_ns" of the request and "at_ns", the time of the effect.

    Args:
        request: as `_Processes` and `_services` describe it.
        counters: called before and after the program. look: called now and then meanwhile, at its connections.

    Raises:
        ProgramError: a process cannot be started.
    """
    services, processes = _services(request), _Processes(channel, request)
    configured = configuration.read()
    before, used_before_s, heart = counters(), _used_s(), heartbeat.Heartbeat(programs=True)
    try:
        processes.start(range(len(request["processes"])))
        channel.send({"cmd": "program", "event": "started"})
        for service in services:
            threading.Thread(target=attend, args=service, daemon=True).start()
        if not processes.watch(look):
            raise SystemExit(0)
    finally:
        lost = heart.stop()
        isolation.kill_programs()  # processes that a program left in the background
        processes.close()
        _close(services)
    report = finished.FinishedProgram(
        changed=configuration.first_change(configured, configuration.read()),
        imports=imported.noted(request["imports"]),
        lost=lost,
        counters_before=before,
        counters_after=counters(),
        processor=finished.Processor(heart.waited_ns / 1e9, _used_s() - used_before_s),
    )
    channel.send({"cmd": "program", "event": "finished", **asdict(report)})


def _used_s() -> float:
    """The processor time of all processes that this one has started, once they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Processes:
    """The processes of this worker, from their first start until the last one ends.

    Args:
        channel: holds the descriptors that arrived with `request`: for each process its stdout and its stderr, and
            before them, with `stdin`, the input of the first process.
        request: processes (a list of {"argv", "env"}; a timed process also has "steps", the file for its steps, and
            "hook": `workloads.loop.stepping`), cwd, imports (the file for notes of the modules that they import). With
            `inherit`, each env is added to the environment of this process.
    """

    def __init__(self, channel: Channel, request: dict[str, Any]) -> None:
        self._channel, self._cwd = channel, request["cwd"]
        self._specs = [spec | {"env": _environment(request, spec["env"])} for spec in request["processes"]]
        self._waiting = not self._specs  # for commands of other workers
        self._input = channel.take_fd() if request.get("stdin") else None
        self._outputs = [(channel.take_fd(), channel.take_fd()) for _ in self._specs]  # kept for a restart
        self._running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}  # by pidfd, readable when it ends
        self._killed: list[int] = []  # to be restarted
        self._restarts = 0
        self._ending = False
        self._began = time.monotonic()

    def close(self) -> None:
        """Close the outputs."""
        inputs = () if self._input is None else (self._input,)
        for fd in (*self._running, *inputs, *(fd for pair in self._outputs for fd in pair)):
            os.close(fd)

    def start(self, numbers: Iterable[int]) -> None:
        """Start processes by number. Raises: ProgramError."""
        for number in numbers:
            spec = self._specs[number]
            if self._restarts:
                spec = spec | {"env": {**spec["env"], _RESTARTS: str(self._restarts)}}
            try:
                given = subprocess.DEVNULL if number or self._input is None else self._input
                process = _start(spec, self._cwd, given, *self._outputs[number])
            except OSError as error:
                raise ProgramError(f"{error.filename or spec['argv'][0]}: {error.strerror}") from None
            self._running[os.pidfd_open(process.pid)] = number, process

    def watch(self, look: Callable[[], None]) -> bool:
        """Report ends and obey commands until all have ended; return False if the controller is gone."""
        while self._running or self._killed or self._waiting:
            readable, _, _ = select.select([self._channel.fileno(), *self._running], [], [], _LOOK_S)
            look()
            for end in [fd for fd in readable if fd in self._running]:
                self._ended(end)
            for message in self._channel.messages() if self._channel.fileno() in readable else ():
                if message is None:
                    return False
                self._obey(message)
        return True

    def _obey(self, message: dict[str, Any]) -> None:
        command = text(message, "cmd")
        if command == "signal":
            self._ending, self._killed, self._waiting = True, [], False
            self._signal(message["number"])
        elif command == "kill":
            self._kill(message)
        elif command == "restart":
            self._restart(message)
        else:
            raise ControlError(
                f"control channel: got {command!r} while a program runs; expected signal, kill or restart"
            )

    def _signal(self, number: int) -> None:
        for _, process in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _kill(self, message: dict[str, Any]) -> None:
        """Send SIGKILL to all processes; report as usual those that had already ended."""
        if self._ending:
            return
        for end in select.select([*self._running], [], [], 0)[0]:
            self._ended(end)
        self._signal(signal.SIGKILL)
        killed = [number for end in list(self._running) if (number := self._ended(end, killed=True)) is not None]
        isolation.kill_programs()
        if killed:
            self._killed = killed if message["again"] else []
            seconds = time.monotonic() - self._began
            self._answer("killed", message, {"again": message["again"], "processes": killed, "seconds": seconds})

    def _restart(self, message: dict[str, Any]) -> None:
        if self._killed:
            numbers, self._killed = self._killed, []
            self._restarts += 1
            self.start(numbers)
            self._answer("restarted", message, {})

    def _answer(self, event: str, message: dict[str, Any], details: dict[str, Any]) -> None:
        times = {"due_ns": message["due_ns"], "at_ns": time.monotonic_ns()}
        self._channel.send({"cmd": "program", "event": event, **times, **details})

    def _ended(self, end: int, *, killed: bool = False) -> int | None:
        """Wait for a process. If it was `killed`, return its number; otherwise report how it ended."""
        number, process = self._running.pop(end)
        os.close(end)
        code = process.wait()
        if killed and code == -signal.SIGKILL:
            return number
        seconds = time.monotonic() - self._began
        self._channel.send({"cmd": "program", "event": "exited", "process": number, "code": code, "seconds": seconds})
        return None


def _environment(request: dict[str, Any], own: dict[str, str]) -> dict[str, str]:
    """The environment of a process that has these variables of its own. If it is Python, it notes its imports."""
    merged = {**(os.environ if request.get("inherit") else {}), **own}
    return merged | {imported.NOTES_FILE: request["imports"]} | stepping.injected(merged)


def _start(spec: dict[str, Any], cwd: str, given: int, out: int, err: int) -> subprocess.Popen[bytes]:
    parent, env = os.getpid(), spec["env"]
    if "steps" in spec:
        env = env | stepping.environment(Path(spec["steps"]), hook=spec["hook"], given=env)

    def restore_signals() -> None:
        namespace.die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        spec["argv"],
        cwd=cwd,
        env=env,
        stdin=given,
        stdout=out,
        stderr=err,
        start_new_session=True,
        preexec_fn=restore_signals,
    )


# ---------------------------------------------------------------- commands of other workers, and the rendezvous


_Service = tuple[socket.socket, Callable[[socket.socket], None]]


def _services(request: dict[str, Any]) -> list[_Service]:
    """Open the sockets of this worker. Return each with what serves a caller.

    `door` is the path of the Unix socket to the rendezvous, None if that crosses the network; `port` is the rendezvous'
    own, and `host` is true on the worker whose program opens it. `agent` is the path of the socket for commands of
    other workers (`workloads.process.agent`), which get `agent_env`. A worker that has one runs until it is signalled,
    unless it has processes.
    """
    services: list[_Service] = []
    if request["door"] is not None:
        at = ("127.0.0.1", request["port"])  # of the program, on all workers but that with the rendezvous
        door = listen(Path(request["door"])) if request["host"] else socket.create_server(at, backlog=1024)
        services.append((door, partial(_join, request)))
    if request.get("agent"):
        sock, environment = listen(Path(request["agent"])), _environment(request, request["agent_env"])
        services.append((sock, partial(agent.serve, environment, request["cwd"])))
    return services


def _close(services: Iterable[_Service]) -> None:
    for listener, _ in services:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # otherwise the accepting thread keeps the port forever
        listener.close()


def _join(request: dict[str, Any], near: socket.socket) -> None:
    """Connect both ends, and copy until both sides have finished."""
    port, is_host = request["port"], request["host"]
    with near:
        try:
            far = dial(("127.0.0.1", port) if is_host else Path(request["door"]), _DIAL_S)
        except OSError:
            late = f"the program of rank 0 did not open its rendezvous within {_DIAL_S:.0f} s"
            print(f"127.0.0.1:{port}: {late}", file=sys.stderr)
            return
        with far:
            if is_host:
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
