"""The relay process reads packets from the workers' TUN devices and writes them to their receivers when they are due.

`harness.emulators.emulator.RelayEmulator` starts it. It uses only the standard library. It sleeps in select()
until the next due time, to the microsecond, and never spins. It ends with its parent, and at the end of its control
socket.

A device does not say when its packets arrived. A relay that slept finds a packet at once. One that was busy, or that
got no processor, finds the packets of that time together. Taken as a burst, they would overflow a short buffer that
they never filled. So they arrived evenly (`found_since`, `evenly`).
"""

import errno
import gc
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Any

from wanbench.harness.emulators.plan import EmulatedNetwork, worker_address
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, VIRTIO_BYTES, Segment
from wanbench.harness.emulators.relay.switch import Port, Switch
from wanbench.harness.emulators.serve import answer, main
from wanbench.harness.process.priority import run_ahead
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.heartbeat import PAUSED, Losses, Lost
from wanbench.workloads.process.namespace import set_timer_slack
from wanbench.workloads.process.tun import passes_segments

_BIN_NS = 20_000
_BINS = 1000  # up to 20 ms; beyond that only the maximum is known
_OVERDUE_NS = 1e6
_AWAKE_NS = 50_000  # select() that returns within this time has not slept
_LATE_NS = 100_000
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
_SEGMENT_BYTES = VIRTIO_BYTES + 65_535


class Histogram:
    """Durations in bins of 20 us, and their exact maximum. Negative durations count as zero."""

    __slots__ = ("_bins", "max_ns")

    def __init__(self) -> None:
        self._bins = [0] * (_BINS + 1)
        self.max_ns = 0.0

    def add(self, ns: float, times: int = 1) -> None:
        """Count a duration."""
        if ns > self.max_ns:
            self.max_ns = ns
        self._bins[min(max(0, int(ns) // _BIN_NS), _BINS)] += times

    def quantile_ms(self, share: float) -> float | None:
        """The upper edge in ms of the bin at this quantile, or None if there are no durations."""
        total = sum(self._bins)
        if not total:
            return None
        index = next(i for i, seen in enumerate(accumulate(self._bins)) if seen >= share * total)
        return self.max_ns / 1e6 if index == _BINS else min((index + 1) * _BIN_NS, self.max_ns) / 1e6


class Meter:
    """Counters of the loop. The switch keeps its own."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self.reset()

    def reset(self) -> None:
        """Begin a new period."""
        self._since, self._cpu = time.monotonic(), time.process_time()
        self._lateness, self._lag, self._pauses = Histogram(), Histogram(), Losses()
        self._used_ns = time.process_time_ns()
        self._overdue_ns = self._overdue_until = 0.0
        self._segments = self._packets = self._bytes = 0
        self.refused = self.gone = 0
        self._switch.reset_counters()

    def delivered(self, segment: Segment, now: float) -> None:
        """Count a segment that was written to its worker."""
        due = segment.last
        self._segments += 1
        self._packets += segment.packets
        self._bytes += segment.nbytes
        self._lateness.add(now - due, segment.packets)
        if now - due > _OVERDUE_NS:
            self._overdue(due, now)

    def turn(self, began: float, ended: float) -> None:
        """Count one turn of the loop, during which nothing was read."""
        self._lag.add(ended - began)
        used_before, self._used_ns = self._used_ns, time.process_time_ns()
        if ended - began > _OVERDUE_NS:
            self._overdue(began, ended)
            self._paused(began + self._used_ns - used_before, ended)

    def slept(self, wake: float, woken: float) -> None:
        """Count a wake-up that was due at `wake`. The relay got no processor until `woken`."""
        if woken - wake > _OVERDUE_NS:
            self._paused(wake, woken)

    def overslept(self, wake: float, woken: float) -> None:
        """Count a wake-up that was due at `wake` and found packets, which can have waited since then."""
        if woken - wake > _OVERDUE_NS:
            self._lag.add(woken - wake)
            self._overdue(wake, woken)

    def _paused(self, begin: float, end: float) -> None:
        self._pauses.add(Lost(PAUSED, round(begin), round(end)))

    def _overdue(self, begin: float, end: float) -> None:
        # Packets leave in the order of their due times, so the end is enough to form the union of periods.
        self._overdue_ns += max(0.0, end - max(begin, self._overdue_until))
        self._overdue_until = max(end, self._overdue_until)

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `emulator.EmulatorStats`."""
        switch = self._switch
        seconds, cpu_s = time.monotonic() - self._since, time.process_time() - self._cpu
        answer = {
            "emulator": "relay",
            "seconds": seconds,
            "sent_bytes": sum(port.sent for port in switch.ports.values()),
            "packets": self._packets,
            "segments": self._segments,
            "offload": all(port.segments for port in switch.ports.values()) if switch.ports else None,
            "bytes": self._bytes,
            "drops": switch.drops() | {"refused": self.refused, "gone": self.gone},
            "not_ipv4": switch.not_ipv4,
            "paths": switch.path_counters(),
            "sites": switch.site_counters(),
            "lateness_p50_ms": self._lateness.quantile_ms(0.5),
            "lateness_p99_ms": self._lateness.quantile_ms(0.99),
            "lateness_max_ms": self._lateness.max_ns / 1e6 if self._packets else None,
            "read_lag_p99_ms": self._lag.quantile_ms(0.99),
            "read_lag_max_ms": self._lag.max_ns / 1e6,
            "overdue_pct": self._overdue_ns / 1e9 / seconds * 100,
            "pauses": [(lost.begin_ns, lost.end_ns) for lost in self._pauses.all()],
            "cpu_s": cpu_s,
        }
        if reset:
            self.reset()
        return answer


def found_since(looked: float, asleep: float, wake: float | None, woken: float) -> float:
    """The earliest time at which packets found at `woken` can have arrived.

    Args:
        looked: when the relay looked before, and took what was there.
        asleep: when it went to sleep.
        wake: when it would have woken up at the latest; None without a limit.
        woken: when it woke up.
    """
    if woken - asleep < _AWAKE_NS:
        return looked
    return wake if wake is not None and woken - wake > _LATE_NS else woken


def evenly(count: int, since: float, until: float) -> Iterator[float]:
    """The arrivals of this many packets between `since` and `until`, the last one now."""
    step = (until - since) / count if count else 0.0
    return (until - remaining * step for remaining in range(count - 1, -1, -1))


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
        arrivals: list[tuple[float, Port, bytes]] = []
        for port in [self._ports[fd] for fd in readable if fd in self._ports]:
            packets = self._read_port(port, longest)
            arrivals += zip(evenly(len(packets), since, until), repeat(port), packets, strict=False)
        arrivals.sort(key=itemgetter(0))
        accept = self._switch.accept
        for arrived, port, data in arrivals:
            accept(data, port, arrived)

    def _read_port(self, port: Port, longest: float) -> list[bytes]:
        """Read what a worker has sent, for a limited time, so that the other workers get their turn."""
        packets: list[bytes] = []
        read, fd, deadline = os.read, port.fd, _now() + longest
        try:
            while True:
                packets.append(read(fd, _SEGMENT_BYTES) if port.segments else NO_OFFLOAD + read(fd, _SEGMENT_BYTES))
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
        """Return the fields of `emulator.EmulatorStats`."""
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
    main(_serve)
