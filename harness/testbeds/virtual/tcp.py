"""The time that TCP adds to a message: a window that opens over several round trips, and retransmissions.

The model of each connection under Reno or CUBIC (`virtual.flow`; BBR has its own, `virtual.bbr`):

* It begins with 10 segments of 1448 bytes and doubles the window each round trip (slow start) until its first loss, or
  with CUBIC until the path is full. After that the window grows as the congestion control says (congestion avoidance).
* While the window is smaller than the capacity of the path, the sender waits for acknowledgements: it sends `window`
  bytes per round trip, and stalls for the rest of it.
* The window grows to at most twice the bytes last in flight, as in Linux, and to at most 32 MiB, half of the buffers
  that workers pin (tcp_rmem, tcp_wmem).
* With `slow_start_after_idle`, each retransmission timeout (RTT + 200 ms) of silence halves the window, down to 10
  segments.
* Packets lost in an outage are sent again by a probe after two round trips, and then after timeouts that begin at RTT +
  200 ms and double each time, as in Linux. After a timeout the window restarts at one segment.
* A loss costs one round trip (fast retransmit) and half of the window (CUBIC: 0.3). If the last packet is lost, no
  later packet reveals it: a probe is sent after two round trips, and 200 ms later if the message had only one packet.
* A sender that is not paced, as in gloo, sends what its window allows at once, also of several messages, and loses what
  the buffer of its narrowest queue cannot hold.

Not modelled: delayed acknowledgements, and the bytes and the queueing of acknowledgements in the opposite direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.earlier import Bursts, Earlier
from wanbench.harness.testbeds.virtual.flow import MAX_WINDOW, SEGMENT_BYTES, Cubic, Flow, Reno, Rules

INITIAL_WINDOW = 10.0 * SEGMENT_BYTES
MIN_TIMEOUT_NS = 200_000_000
MAX_TIMEOUT_NS = 120_000_000_000

NEVER = 1 << 60  # nanoseconds: an event at this time does not happen

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tcp:
    """The modelled features of TCP.

    Attributes:
        ramp: windows. Without them only rates limit a message, and a loss costs only its round trip.
        slow_start_after_idle: the Linux setting of that name.
        congestion: "reno", "cubic" or "bbr".
    """

    ramp: bool = True
    slow_start_after_idle: bool = False
    congestion: str = "reno"


_RENO = Reno()


class Connections:
    """The windows of connections that carry messages of one kind.

    Args:
        tcp: the modelled features. count: number of connections.
        paced: whether senders keep to their share of the rate.
    """

    def __init__(self, tcp: Tcp, count: int, *, paced: bool = True) -> None:
        self._tcp, self.paced = tcp, paced
        self._window = np.full(count, INITIAL_WINDOW)
        self._avoiding = np.zeros(count, np.bool_)  # congestion avoidance: a loss has been seen
        self._last_sent = np.zeros(count, np.int64)
        self._last_arrival, self._last_begin = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._cubic: dict[int, Rules] = {}
        self._earlier = Earlier(count, paced=paced)
        self._resumes: dict[int, int] = {}  # when a connection held by an outage gets through again

    def stall(self, index: Ints, ready: Ints, load: Load, losses: Ints | None, tail_lost: Ints | None) -> Stall:
        """How much longer messages take than their bytes at the rate of their path.

        Args:
            index: the connection of each message, all different.
            ready: when each message begins.
            load: their load.
            losses: number of lost packets of each message; None if no packet is lost.
            tail_lost: 1 for each message that loses its last packet; None if no packet is lost.
        """
        window = self._after_idle(index, ready, load)
        bursts = self._bursts(index, ready, load, window)
        stall = np.zeros(len(index), np.int64) if bursts is None else np.rint(bursts.held_ns).astype(np.int64)
        slow = np.zeros(len(index), np.bool_) if losses is None else losses > 0
        if self._tcp.ramp:
            slow = slow | (load.flow_bytes > (window if bursts is None else np.minimum(bursts.free, bursts.room)))
        again = np.zeros(len(index), np.int64)
        grown = np.minimum(np.maximum(window, 2 * load.flow_bytes), window + load.flow_bytes)
        after = np.where(self._avoiding[index], window, np.minimum(grown, MAX_WINDOW))
        for i in np.flatnonzero(slow).tolist():
            if not self._tcp.ramp:
                stall[i] += int(load.rtt_ns[i])
                again[i] += int(load.rtt_ns[i])
                continue
            flow = self._flow(int(index[i]), float(window[i]), load, i)
            lost = 0 if losses is None else int(losses[i])
            flow.carry(float(load.flow_bytes[i]), lost, None if bursts is None else bursts.of(i))
            after[i], self._avoiding[index[i]] = flow.window, flow.avoiding
            stall[i] += round(flow.stall_ns)
            again[i] = round(flow.lost_ns)
        if tail_lost is not None:
            probed = np.where(tail_lost > 0, self.probe_ns(load), 0)
            stall, again = stall + probed, again + probed
        self._window[index] = after
        left = ready + load.drain_ns + stall
        if bursts is not None:
            drained = ready + bursts.wait_ns + load.drain_ns
            flying = np.minimum(load.flow_bytes, after)
            last_ns = np.minimum(after / np.maximum(load.flow_bytes, 1.0), 1.0) * load.drain_ns.astype(np.float64)
            self._earlier.add(index, ready, drained, stall, load.rtt_ns, flying, after - window, last_ns)
            left = np.rint(drained + stall).astype(np.int64)
        self._last_sent[index] = np.maximum(self._last_sent[index], left)
        return Stall(again, left)

    def _after_idle(self, index: Ints, ready: Ints, load: Load) -> Floats:
        """The windows of connections after their silence."""
        window: Floats = self._window[index]
        if not (self._tcp.ramp and self._tcp.slow_start_after_idle):
            return window
        timeouts = np.clip((ready - self._last_sent[index]) // (load.rtt_ns + MIN_TIMEOUT_NS), 0, 60)
        kept: Floats = np.maximum(window * 0.5**timeouts, np.minimum(window, INITIAL_WINDOW))
        return kept

    def _bursts(self, index: Ints, ready: Ints, load: Load, window: Floats) -> Bursts | None:
        """What each sender can send at once; None without windows."""
        if not self._tcp.ramp:
            return None
        ns_per_byte = load.drain_ns / np.maximum(load.flow_bytes, 1.0)
        held = np.full(len(index), np.inf) if self.paced or load.buffer_bytes is None else load.buffer_bytes
        return self._earlier.bursts(index, ready, window, held, ns_per_byte)

    def _flow(self, index: int, window: float, load: Load, i: int) -> Flow:
        ns_per_byte = float(load.drain_ns[i]) / max(float(load.flow_bytes[i]), 1.0)  # shared with others of its round
        rules = _RENO if self._tcp.congestion == "reno" else self._cubic.setdefault(index, Cubic())
        return Flow(window, bool(self._avoiding[index]), float(load.rtt_ns[i]), ns_per_byte, rules, paced=self.paced)

    def probe_ns(self, load: Load) -> Ints:
        """How much longer messages take whose last packet is lost, so that a probe must reveal it.

        For a single packet the probe waits 200 ms longer, but gloo has two messages in flight: the other reveals it.
        """
        alone = (load.flow_bytes <= SEGMENT_BYTES) & self.paced
        late: Ints = load.rtt_ns + np.where(alone, MIN_TIMEOUT_NS, 0)
        return late

    def resume_ns(self, index: int, lost: Lost, dark: Callable[[int], int | None]) -> int:
        """When the packets lost in an outage arrive, without the rest of the message; `NEVER` or later if they do not.

        Args:
            index: the connection.
            lost: the lost packets.
            dark: returns the end of the outage at a time, or None if there is none.
        """
        known = self._resumes.get(index, 0)
        if known > lost.at_ns:  # the connection already retransmits, and this message is behind
            return known
        for time, probe in attempts(lost):
            healed = dark(time)
            if healed is not None and healed >= NEVER:
                return NEVER
            if healed is None:
                self._resumes[index] = time
                return time + (0 if not self._tcp.ramp else self._restart(index, lost, probe=probe))
        raise AssertionError("attempts never end")

    def _restart(self, index: int, lost: Lost, *, probe: bool) -> int:
        """The nanoseconds that the window adds to a retransmission."""
        if probe:  # it only waits for the acknowledgement of the probe
            self._window[index] = max(self._window[index] / 2, 2.0 * SEGMENT_BYTES)
            self._avoiding[index] = True
            return lost.rtt_ns
        flow = Flow(float(SEGMENT_BYTES), False, float(lost.rtt_ns), 0.0, _RENO)
        flow.carry(lost.nbytes, 0)
        self._window[index], self._avoiding[index] = flow.window, False
        return round(flow.stall_ns)

    def in_order(self, index: Ints, begin: Ints, arrival: Ints) -> Ints:
        """Return arrival times such that no message overtakes an earlier one of its connection.

        Messages come round by round, so one that begins at `begin` can come after one that begins later.
        """
        follows = begin >= self._last_begin[index]
        arrival = np.where(follows, np.maximum(arrival, self._last_arrival[index]), arrival)
        self._last_arrival[index] = np.where(follows, arrival, self._last_arrival[index])
        self._last_begin[index] = np.maximum(begin, self._last_begin[index])
        return arrival


@dataclass(frozen=True)
class Lost:
    """The part of a message that is lost in an outage.

    Attributes:
        at_ns: when its first packet was lost.
        rtt_ns: round-trip time of the connection without queueing.
        smoothed_ns: round-trip time that TCP measured at the end of a burst: it includes the queue of that burst in
            one direction and, as workers send at the same time, of another burst in the other.
        packets: number of packets of the whole message.
        nbytes: number of lost bytes.
    """

    at_ns: int
    rtt_ns: int
    smoothed_ns: int
    packets: int
    nbytes: float


def attempts(lost: Lost) -> Iterator[tuple[int, bool]]:
    """Yield the retransmissions of unacknowledged data as (time, whether it is a probe), without end.

    A probe (RFC 8985) is sent after two round trips, 200 ms later if the message has only one packet, but never later
    than the timeout. The timeout then restarts, as in Linux (`tcp_send_loss_probe`).
    """
    timeout = lost.smoothed_ns + MIN_TIMEOUT_NS
    time = lost.at_ns + min(2 * lost.smoothed_ns + (MIN_TIMEOUT_NS if lost.packets <= 1 else 0), timeout)
    yield time, True
    while True:
        time += timeout
        yield time, False
        timeout = min(2 * timeout, MAX_TIMEOUT_NS)


@dataclass(frozen=True)
class Stall:
    """How TCP delays messages, in nanoseconds. Arrays have the shape (messages,).

    Attributes:
        again_ns: how long lost packets are sent again, which begins when they have been in the queues.
        left_ns: when the last byte of each would leave, were the queues empty.
    """

    again_ns: Ints
    left_ns: Ints

    def behind(self, end: Ints) -> Ints:
        """When the messages leave that the queues let go at `end`: TCP's windows wait at the same time."""
        left: Ints = np.maximum(end, self.left_ns - self.again_ns) + self.again_ns
        return left


@dataclass(frozen=True)
class Load:
    """The load of a round's messages on their connections. Arrays have the shape (messages,).

    Attributes:
        flow_bytes: payload per connection; a message to a site can stand for one to each of its workers.
        rtt_ns: round-trip time without queueing.
        drain_ns: time that the round occupies the busiest queue of each message.
        buffer_bytes: payload per connection that the buffer of the narrowest queue holds.
    """

    flow_bytes: Floats
    rtt_ns: Ints
    drain_ns: Ints
    buffer_bytes: Floats | None = None
