"""The relay process reads packets from the workers' TUN devices and writes them to their receivers when they are due.

`harness.emulators.relay.emulator.RelayEmulator` starts it. It uses only the standard library. It sleeps in select()
until the next due time, to the microsecond, and never spins. It ends with its parent, and at the end of its control
socket.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import time
from collections.abc import Iterable
from itertools import repeat
from operator import itemgetter
from typing import Any

from wanbench.harness.emulators.plan import EmulatedNetwork, worker_address
from wanbench.harness.emulators.relay.arrivals import evenly, found_since
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, VIRTIO_BYTES, Segment
from wanbench.harness.emulators.relay.stats import Meter
from wanbench.harness.emulators.relay.switch import Port, Switch
from wanbench.harness.emulators.serve import answer, main
from wanbench.harness.process.priority import run_ahead
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.namespace import set_timer_slack
from wanbench.workloads.process.tun import passes_segments

# A wake-up costs about as much as two packets, so each one acts on everything due within this time.
_COALESCE_NS = 100_000
# While the relay gets no processor time, packets wait unseen. If nothing is due, the relay therefore wakes up every
# 2 ms as long as there is traffic, and notices if a wake-up is late. This costs half a percent of a core. Without
# traffic it still has to notice pauses, because they delay the next packet.
_WATCH_NS, _QUIET_WATCH_NS = 2_000_000, 20_000_000
_QUIET_NS = 1_000_000_000
# Limits of one turn of the loop, so that nothing waits long: the time for reading from a port, in ns and as a share of
# the time in which its packets arrived, and what is written.
_READING_NS, _READING_SHARE = 100_000, 0.1
_WRITES_PER_TURN, _BYTES_PER_TURN = 64, 1 << 19
_GONE = (errno.EBADF, errno.EBADFD, errno.ENODEV, errno.EIO)
_PACKET_BYTES, _SEGMENT_BYTES = 1536, VIRTIO_BYTES + 65_535


def _now() -> float:
    # A float of nanoseconds is exact for 104 days of uptime, and is faster than an int to compare with floats.
    return float(time.monotonic_ns())


class Relay:
    """The loop around a Switch: it reads and writes descriptors, and obeys commands."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._switch = Switch()
        self._meter = Meter(self._switch)
        self._ports: dict[int, Port] = {}  # by descriptor
        self._watched = [control.fileno()]

    def serve(self) -> None:
        """Serve until the control socket ends."""
        switch, meter, ports, control = self._switch, self._meter, self._ports, self._control.fileno()
        wait = select.select
        began = last_read = _now()
        while True:
            looked, due, now = began, switch.next_due(), _now()
            meter.turn(began, now)
            quiet = due is None and now - last_read > _QUIET_NS
            watch = now + (_QUIET_WATCH_NS if quiet else _WATCH_NS)
            wake = watch if due is None else min(due, watch)
            readable, _, _ = wait(self._watched, (), (), max(0.0, (wake - now) / 1e9))
            began = _now()
            meter.slept(max(now, wake), began)
            if not quiet and not ports.keys().isdisjoint(readable):
                meter.overslept(wake, began)
            if control in readable:
                readable.remove(control)
                if not answer(self._control, self):
                    return
            if readable:
                last_read = began
                self._read(readable, found_since(looked, now, None if quiet else wake, began), began)
            for segment in switch.release(_now() + _COALESCE_NS, _WRITES_PER_TURN, _BYTES_PER_TURN):
                self._write(segment)

    def _read(self, readable: Iterable[int], since: float, until: float) -> None:
        """Take what the workers sent between two times, in the order in which it arrived."""
        longest = max(_READING_NS, _READING_SHARE * (until - since))
        found: list[tuple[float, Port, bytes]] = []
        for port in [self._ports[fd] for fd in readable if fd in self._ports]:
            packets = self._read_port(port, longest)
            found += zip(evenly(len(packets), since, until), repeat(port), packets, strict=False)
        found.sort(key=itemgetter(0))
        accept = self._switch.accept
        for arrived, port, data in found:
            accept(data, port, arrived)

    def _read_port(self, port: Port, longest: float) -> list[bytes]:
        """Read what a worker has sent, for a limited time, so that the other workers get their turn."""
        packets: list[bytes] = []
        read, fd, deadline = os.read, port.fd, _now() + longest
        try:
            while True:
                packets.append(read(fd, _SEGMENT_BYTES) if port.segments else NO_OFFLOAD + read(fd, _PACKET_BYTES))
                if _now() > deadline:
                    break
        except BlockingIOError:
            pass
        except OSError:  # the namespace of the worker is gone, and its device with it
            self._detach(port)
        return packets

    def _write(self, segment: Segment) -> None:
        port = segment.port
        try:
            os.write(port.fd, segment.data if port.segments else segment.data[VIRTIO_BYTES:])
        except OSError as error:
            if error.errno not in _GONE:
                self._meter.refused += segment.packets
                return
            self._meter.gone += segment.packets
            if error.errno in (errno.EBADFD, errno.ENODEV):
                self._detach(port)
        else:
            self._meter.delivered(segment, _now())

    def _detach(self, port: Port) -> None:
        """Close a port. Packets in flight to it will be counted as gone."""
        if port.fd >= 0:
            self._watched.remove(port.fd)
            del self._ports[port.fd]
            os.close(port.fd)
            port.fd = -1

    # ---------------------------------------------------------------- commands

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build this network."""
        self._switch.apply(network, seed)

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Raises: ValueError, if its sites or workers differ."""
        self._switch.update(network)

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `base.EmulatorStats`."""
        return self._meter.report(reset=reset)

    def attach(self, rank: int, fd: int) -> None:
        """Connect the device of a worker. It replaces the one before.

        Raises:
            ValueError: it passes single packets and the others segments, or the reverse.
        """
        segments, old = passes_segments(fd), self._switch.ports.get(rank)
        if any(port.segments != segments for port in self._ports.values() if port is not old):
            os.close(fd)
            raise ValueError(
                f"the device of worker {rank} has {'' if segments else 'no '}segmentation offload, unlike others"
            )
        if old is not None:
            self._detach(old)
        os.set_blocking(fd, False)
        port = self._switch.attach(rank, socket.inet_aton(worker_address(rank)), fd, segments=segments)
        self._ports[fd] = port
        self._watched.append(fd)


def _serve(control_fd: int, _: int) -> None:
    set_timer_slack(1)
    run_ahead()
    # The loop makes no reference cycles. A collection would visit every packet in flight while others wait.
    gc.disable()
    # select() takes descriptors below 1024, and the controller may have many open.
    control = socket.socket(fileno=os.dup(control_fd))
    os.close(control_fd)
    with control:
        Relay(Channel(control)).serve()


if __name__ == "__main__":
    main("wanbench.harness.emulators.relay.process", _serve)
