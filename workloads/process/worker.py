"""A worker: takes commands from its control channel, runs jobs, streams rows back.

Commands (one JSON object per line). Each is answered with one object that has the same "cmd", or "error":
    tcp       set the TCP settings in the worker's namespace; answers with the values in force
    probe     one side of a path measurement (wanbench.workloads.process.probing)
    counters  bytes of the emulated device and TCP's counters
    program   run a user's program in this network (wanbench.workloads.process.program)
    job       form the group ("joined"); on "go": warm up ("warming" ..., "warm"), train ("rows" ...), evaluate
              ("evaluating" ...), answer; on "leave": hang up. It prints to the descriptor that arrives with the command
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.loop.job import Job
from wanbench.workloads.process import connections, machine, namespace, probing, program, route, tun
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.heartbeat import Heartbeat

INTERFACE = "wan0"
# What jobs need beyond this module. A parent imports it for its workers; a worker that only runs programs never does.
TRAINING = ("wanbench.workloads.process.joining", "wanbench.workloads.loop.session")
_ROW_INTERVAL_S = 1.0


def main(channel: Channel, request: Mapping[str, Any]) -> None:
    """Become a machine with its own network, send its attachment to the controller, then serve until end of file.

    Args:
        request: `address`; `attachment`, the descriptor to send: `tun`, a TUN device, or `netns`, the namespace itself;
            `congestion` of all connections to peers or None, only used if this side makes the device, and the kernel
            has it; `name` of this host; `hosts`, the address of each name; `private_tmp`, as in `machine.enter`.
    """
    address, attachment, congestion = request["address"], request["attachment"], request["congestion"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the controller decides
    routed = None
    try:
        namespace.enter_private_network()
        machine.enter(request["name"], request["hosts"], request["private_tmp"])
        descriptor = open_attachment(attachment, address)
        if attachment == "tun" and congestion is not None and route.set_congestion(INTERFACE, address, congestion):
            routed = congestion
        namespace.drop_privileges()
    except (OSError, ValueError, RuntimeError) as error:
        channel.send({"error": str(error), "kind": type(error).__name__})
        return
    channel.send({"cmd": "ready", "address": address}, fds=[descriptor])
    os.close(descriptor)
    serve(channel, address, routed)


def open_attachment(kind: str, address: str) -> int:
    """Open the descriptor that joins this worker to the others; see `main`. Raises: OSError, TunError."""
    if kind == "netns":
        return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    descriptor = tun.open_tun(INTERFACE, address)
    route.lead_outside(INTERFACE, address)
    return descriptor


def serve(channel: Channel, address: str, routed: str | None = None) -> None:
    """Obey the controller until end of file, or until a message is invalid.

    Args:
        routed: the congestion control of the route to the peers, if it was set.
    """
    # The controller sends this signal to a hanging worker, which writes its stack to its log.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    try:
        while (message := channel.recv()) is not None:
            answer = _answer(channel, message, address, routed)
            if answer is not None:
                channel.send(answer)
    except ControlError as error:
        with suppress(OSError):
            channel.send({"error": str(error), "kind": type(error).__name__})


def _answer(channel: Channel, message: dict[str, Any], address: str, routed: str | None) -> dict[str, Any] | None:
    try:
        return _handle(channel, message, address, routed)
    except ControlError:
        raise
    except Exception as error:
        if message["cmd"] == "job":  # a job can run the user's code
            traceback.print_exc()
            sys.stderr.flush()
        kind = type(error).__name__
        # Our own errors are sentences. A user's KeyError needs its name to be understood.
        ours = type(error).__module__ != "builtins"
        return {"error": str(error) if ours else f"{kind}: {error}", "kind": kind}


def _handle(channel: Channel, message: dict[str, Any], address: str, routed: str | None) -> dict[str, Any] | None:
    command = text(message, "cmd")
    if command == "tcp":
        return {"cmd": command, "tcp": namespace.set_tcp(message["settings"], routed)}
    if command == "probe":
        return {"cmd": command, "role": message["role"], **probing.handle(message)}
    if command == "counters":
        return {"cmd": command, **_counters()}
    if command == "program":
        program.run(channel, message, _counters)
        return None
    if command in ("signal", "kill", "restart"):  # the program has just ended
        return None
    if command == "job":
        _run_job(channel, _job(message), address, routed)
        return None
    raise ControlError(f"control channel: unknown command {command!r}")


def _job(message: dict[str, Any]) -> Job:
    try:
        return Job(**message["job"])
    except (KeyError, TypeError) as error:
        raise ControlError(f"control channel: invalid job: {error}") from None


def _counters() -> dict[str, Any]:
    return {
        "device": tun.device_counters(INTERFACE),
        "tcp": tun.tcp_counters(),
        "udp_overflows": tun.udp_overflows(),
        "cpu_wait_ns": namespace.cpu_wait_ns(),
    }


def _run_job(channel: Channel, job: Job, address: str, routed: str | None) -> None:
    import torch  # with TRAINING

    from wanbench.workloads.loop import session
    from wanbench.workloads.process.joining import join

    torch.set_num_threads(1)
    _log_into(channel.take_fd())
    comm, clock, rows = join(job, address, INTERFACE), MonotonicClock(), _RowStream(channel, job.told_steps)
    if routed is not None and (others := connections.congestion_in_use() - {routed}):
        raise CommError(f"connections use {', '.join(sorted(others))}; expected {routed}, as the route says")
    channel.send({"cmd": "job", "event": "joined"})
    _expect(channel, "go")
    before: dict[str, Any] = {}
    heart: list[Heartbeat] = []

    def warm() -> None:
        before.update(_counters())
        heart.append(Heartbeat())
        channel.send({"cmd": "job", "event": "warm", "now_ns": clock.now()})

    def windows() -> int:
        channel.send({"cmd": "job", "event": "warming"})  # a long warm-up is no hang
        return connections.congestion_windows()

    def evaluating() -> None:
        channel.send({"cmd": "job", "event": "evaluating"})  # nor are many evaluations

    try:
        outcome = session.run(job, comm, clock, rows.add, warm=warm, windows=windows, evaluating=evaluating)
    finally:
        lost = [each for beat in heart for each in beat.stop()]
    rows.flush()
    counters = {"counters_before": before, "counters_after": _counters()}
    channel.send({"cmd": "job", "event": "finished", "outcome": vars(outcome), "lost": lost, **counters})
    _expect(channel, "leave")
    comm.close()
    channel.send({"cmd": "job", "event": "left"})


class _RowStream:
    """Sends step rows in batches, about one per second, at no measurable cost. Reports some steps at once."""

    def __init__(self, channel: Channel, reported: Sequence[int]) -> None:
        self._channel, self._reported = channel, frozenset(reported)
        self._rows: list[dict[str, Any]] = []
        self._sent = time.monotonic()

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if row["step"] + 1 in self._reported:
            self._channel.send({"cmd": "job", "event": "step", "step": row["step"] + 1, "now_ns": row["end_ns"]})
        if time.monotonic() - self._sent >= _ROW_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._channel.send({"cmd": "job", "event": "rows", "rows": self._rows})
        self._rows = []
        self._sent = time.monotonic()


def _expect(channel: Channel, command: str) -> None:
    message = channel.recv()
    if message is None:
        raise SystemExit(0)
    if text(message, "cmd") != command:
        raise ControlError(f"control channel: the controller sent {message['cmd']!r}; expected {command!r}")


def _log_into(fd: int) -> None:
    """Send all later output of this process to `fd`, including output of C++ code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def serve_forked(sock: socket.socket, request: dict[str, Any]) -> None:
    """Run a newly forked worker."""
    main(Channel(sock), request)
