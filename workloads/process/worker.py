"""A worker: takes commands from its control channel, runs jobs, streams rows back.

Commands (one JSON object per line). Each is answered with one object that has the same "cmd", or "error":
    tcp       set the TCP settings in the worker's namespace; answers with the values in force
    probe     one side of a path measurement (wanbench.workloads.process.probing)
    counters  bytes of the emulated device and TCP's counters
    program   run a user's program in this network (wanbench.workloads.process.program)
    job       form the group ("joined"); on "go": warm up ("warming" ..., "warm"), train ("rows" ...), evaluate
              ("evaluating" ...), answer; on "leave": hang up. It prints to the descriptor that arrives with the command
              If it has a deadline, it also obeys "kill" and "restart" (wanbench.workloads.process.training)
"""

import errno
import faulthandler
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wanbench.workloads.loop.job import Job
from wanbench.workloads.process import configuration, connections, isolation, namespace, probing, program, tun
from wanbench.workloads.process.control import Channel, ControlError, failure, text
from wanbench.workloads.process.finished import Counters

INTERFACE = "wan0"
# What jobs need beyond this module. A parent imports it for its workers; a worker that only runs programs never does.
TRAINING = "wanbench.workloads.process.training"
CONNECTIONS = connections.Connections()


def serve_forked(sock: socket.socket, request: Mapping[str, Any]) -> None:
    """Become a machine with its own network, send its attachment to the controller, then serve until end of file.

    Args:
        request: `address`; `attachment`, the descriptor to send: `tun`, a TUN device, or `netns`, the namespace itself;
            `congestion` of all connections to peers or None, and `mtu`, only used if this side makes the device; `name`
            of this host; `hosts`, the address of each name; `private_tmp`, as in `isolation.enter`.
    """
    channel = Channel(sock)
    address, attachment = request["address"], request["attachment"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the controller decides
    try:
        namespace.enter_private_network()
        isolation.enter(request["name"], request["hosts"], request["private_tmp"])
        descriptor, routed = open_attachment(attachment, address, request["congestion"], request["mtu"])
        namespace.drop_privileges()
    except (OSError, ValueError, RuntimeError) as error:
        channel.send({"error": str(error), "kind": type(error).__name__})
        return
    channel.send({"cmd": "ready", "address": address}, fds=[descriptor])
    os.close(descriptor)
    serve(channel, address, routed)


def open_attachment(kind: str, address: str, congestion: str | None, mtu: int) -> tuple[int, str | None]:
    """Open what joins this worker to the others; see `serve_forked`.

    Return the descriptor, and the congestion control that the route to the others has, if it was set.

    Raises:
        OSError, TunError: without the right to make a device.
        NamespaceError: the kernel does not have this congestion control.
    """
    if kind == "netns":
        return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC), None
    descriptor = tun.open_tun(INTERFACE, address, mtu=mtu)
    namespace.lead_outside(INTERFACE, address)
    if congestion is not None and not namespace.set_congestion(INTERFACE, address, congestion):
        raise namespace.NamespaceError(namespace.congestion_refused(congestion, errno.ENOENT))
    return descriptor, congestion


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
        return failure(error)


def _handle(channel: Channel, message: dict[str, Any], address: str, routed: str | None) -> dict[str, Any] | None:
    command = text(message, "cmd")
    if command == "tcp":
        return {"cmd": command, "tcp": namespace.set_tcp(message["settings"], routed)}
    if command == "probe":
        return {"cmd": command, "role": message["role"], **probing.handle(message)}
    if command == "counters":
        return {"cmd": command, **vars(_counters())}
    if command == "program":
        program.run(channel, message, _counters, CONNECTIONS.look)
    elif command == "job":
        try:
            job = Job(**message["job"])
        except (KeyError, TypeError) as error:
            raise ControlError(f"control channel: invalid job: {error}") from None
        _run_job(channel, job, address, routed)
    elif command not in ("signal", "kill", "restart"):  # of a program or job that has just ended
        raise ControlError(f"control channel: unknown command {command!r}")
    return None


def _counters() -> Counters:
    tcp = tun.tcp_counters() | CONNECTIONS.counters()
    return Counters(tun.device_counters(INTERFACE), tcp, tun.udp_overflows(), namespace.cpu_wait_ns())


def _run_job(channel: Channel, job: Job, address: str, routed: str | None) -> None:
    from wanbench.workloads.process import training  # with TRAINING

    _log_into(channel.take_fd())
    configured = configuration.read()

    def train(channel: Channel, job: Job, before: Counters | None = None) -> training.Trainer:
        trainer = training.Trainer(channel, job, address, INTERFACE, _counters, routed)
        trainer.run(before)
        return trainer

    if job.deadline_s is not None:
        training.run_mortal(channel, job, train, _counters)
    else:
        trainer = train(channel, job)
        training.expect(channel, "leave")
        trainer.close()
    # A trainer that a timeline killed has left its machine, which tells this too.
    changed = configuration.first_change(configured, configuration.read())
    channel.send({"cmd": "job", "event": "left", "changed": changed})


def _log_into(fd: int) -> None:
    """Send all later output of this process to `fd`, including output of C++ code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
