"""Connections under BBR, version 1 as in Linux: a sender paced at a multiple of the rate that it has measured.

* It begins with 10 segments per round trip, and sends at 2.885 times the measured rate until the rate stops growing.
  Then it sends at that rate.
* It sends at most the largest window of its host in a round trip, evenly.
* A message that ends within a round trip shows a lower rate than the path has: its bytes arrive within its time of
  sending and a round trip, or in the time since the last message was acknowledged. Such a sample never lowers the
  estimate, and does not end the start. So a connection that carries only small messages spreads each over up to half a
  round trip.
* What is lost is sent again, which takes its share of the message's time. Losses in the last round trip of a message
  together cost another one; earlier ones are repaired meanwhile. A loss changes neither rate nor window.
* A later message that lasts longer than a round trip raises the rate by up to a quarter, if the path has more.
* It remembers the shortest round trip (`RoundTrips`; `bbr_update_min_rtt` of Linux). If none was shorter for ten
  seconds and bytes are on their way, it measures: it sends nothing until they have arrived, and then four segments at a
  time for 0.2 s or a round trip. If the ten seconds end in a silence, the next acknowledgement is a measurement, and
  nothing is held up.
* Round trips differ by some noise, so number n is the shortest yet with probability 1 / n. When the ten seconds begin
  is therefore drawn, by a random stream of each connection.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wanbench.harness.testbeds.virtual import Bools, Floats, Ints
from wanbench.harness.testbeds.virtual.congestion import BURST_NS, SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.streams import Stream, key
from wanbench.harness.testbeds.virtual.tcp import INITIAL_WINDOW, Connections, Load, Tcp

_STARTUP_GAIN = 2 / math.log(2)
_PROBE_GAIN = 1.25
_REMEMBERED = 4  # messages of a connection
_BUSY = 16  # periods of a connection
_VALID_NS = 10e9
_HOLD_NS = 200e6
_HELD_BYTES = 4.0 * SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, and when its first and its last byte are sent."""

    begin_ns: float
    end_ns: float
    nbytes: float


class BbrConnections(Connections):
    def __init__(self, tcp: Tcp, count: int, **options: Any) -> None:
        super().__init__(tcp, count, **options)
        self._rate = np.zeros(count)  # measured, in bytes/ns; 0 before the first message
        self._filled = np.zeros(count, np.bool_)  # the start has ended
        self._sent: dict[int, list[Sent]] = {}  # the last messages of a connection
        self._busy: dict[int, list[tuple[float, float]]] = {}  # when those that a window limits send
        self._round_trips = RoundTrips(count, self._seed, self._name)

    def stall(self, index: Ints, ready: Ints, load: Load, losses: Ints | None) -> tuple[Ints, Ints]:
        load = load.at_pace(self._room)
        path = np.where(load.drain_ns > 0, load.flow_bytes / np.maximum(load.drain_ns, 1), np.inf)  # in bytes/ns
        begin, wait_ns, held_ns = behind = self._last.behind(index, ready)
        stall = np.rint(held_ns).astype(np.int64)
        rate = self._rate[index] * np.where(self._filled[index], 1.0, _STARTUP_GAIN)
        fastest = np.minimum(path, load.most(self._largest, self._queue) / np.maximum(load.rtt_ns, 1))
        slow = (load.flow_bytes > 0) & (np.minimum(rate, fastest) < path) & (load.rtt_ns > 0)
        for i in np.flatnonzero(slow).tolist():
            message = Sent(float(begin[i]), math.inf, float(load.flow_bytes[i]))
            stall[i] += self._start(int(index[i]), message, float(load.rtt_ns[i]), float(fastest[i]), float(path[i]))
        again = np.zeros(len(index), np.int64)
        if losses is not None:
            again = _again_ns(losses[0], load) + losses[1] * self.probe_ns(load)
        drained = np.asarray(ready + wait_ns + load.drain_ns, np.float64)
        first = ready + wait_ns + held_ns
        silent = self._last.acknowledged_ns(index) <= first
        last = self._round_trips.last_ns(index, first, drained + stall, silent, load)
        stall = np.rint(last - drained).astype(np.int64) + again
        nothing = np.zeros(len(index))
        self._last.add(index, ready, behind, drained, stall, load.rtt_ns, load.flow_bytes, nothing, nothing)
        return again, np.rint(drained + stall).astype(np.int64)

    def _start(self, connection: int, message: Sent, rtt_ns: float, fastest: float, path: float) -> int:
        """Send a message faster and faster. Return how much longer it takes than at the rate of the path.

        Args:
            fastest: the largest rate in bytes/ns, that of the path or of one window in a round trip. path: its rate.
        """
        rate = float(self._rate[connection]) or INITIAL_WINDOW / rtt_ns
        unsent, took_ns = message.nbytes, 0.0
        while True:
            pace = min(rate * (1.0 if self._filled[connection] else _STARTUP_GAIN), fastest)
            if unsent <= pace * rtt_ns:
                break
            took_ns, unsent, rate = took_ns + rtt_ns, unsent - pace * rtt_ns, max(rate, pace)
            if pace >= fastest or self._filled[connection]:
                if self._filled[connection]:
                    rate = max(rate, min(fastest, _PROBE_GAIN * pace))
                self._filled[connection] = True
                break
        end_ns = message.begin_ns + took_ns + unsent / pace
        if pace < path:
            end_ns = self._in_turn(connection, message.begin_ns, end_ns)
        message = replace(message, end_ns=end_ns)
        earlier = self._sent.setdefault(connection, [])
        if took_ns == 0.0:
            rate = max(rate, min(_measured(message, earlier, rtt_ns), fastest))
        self._sent[connection] = [*earlier[1 - _REMEMBERED :], message]
        self._rate[connection] = rate
        return max(0, round(message.end_ns - message.begin_ns - message.nbytes / path))

    def _in_turn(self, connection: int, begin_ns: float, end_ns: float) -> float:
        """When a message ends that would send from `begin_ns` to `end_ns`, were the connection free.

        Rounds come in any order. One that begins before others uses the time that they leave.
        """
        others = self._busy.get(connection, [])
        now, left_ns, apart = begin_ns, end_ns - begin_ns, []
        for begin, end in others:
            if end <= begin_ns or begin - now > left_ns:
                apart.append((begin, end))
            else:
                left_ns -= max(0.0, begin - now)
                now = max(now, end)
        last_ns = now + left_ns
        self._busy[connection] = sorted([*apart, (begin_ns, last_ns)])[-_BUSY:]
        return last_ns


def _again_ns(losses: Ints, load: Load) -> Ints:
    """How much longer a message takes that loses this many packets: expected values, as losses lie anywhere in it."""
    in_last = losses * load.rtt_ns / np.maximum(load.drain_ns, np.maximum(load.rtt_ns, 1))
    lost = losses / np.maximum(np.ceil(load.flow_bytes / SEGMENT_BYTES), 1)
    return np.rint(np.minimum(in_last, 1) * load.rtt_ns + lost * load.drain_ns).astype(np.int64)


def _measured(message: Sent, earlier: Sequence[Sent], rtt_ns: float) -> float:
    """The rate that the acknowledgement of a message's last byte shows, in bytes/ns. Source: `tcp_rate.c` of Linux.

    It counts what was delivered since the newest acknowledgement that had arrived when that byte was sent. After a
    silence, the time counts from the first byte.
    """
    begin_ns, delivered, since_ns = message.begin_ns, message.nbytes, message.begin_ns
    for sent in reversed(earlier):
        acknowledged_ns = sent.end_ns + rtt_ns
        if acknowledged_ns <= begin_ns:
            break
        if acknowledged_ns <= message.end_ns:
            since_ns = acknowledged_ns
            break
        if sent.begin_ns + rtt_ns < message.end_ns:
            delivered += sent.nbytes * (acknowledged_ns - message.end_ns) / (sent.end_ns - sent.begin_ns)
            since_ns = message.end_ns
            break
        delivered += sent.nbytes
        begin_ns = since_ns = sent.begin_ns
    return delivered / (message.end_ns + rtt_ns - since_ns)


class RoundTrips:
    """The measurements of each connection.

    Args:
        count: number of connections. seed, name: of the random streams.
    """

    def __init__(self, count: int, seed: int, name: Sequence[object]) -> None:
        self._seed, self._name = seed, name
        self._shortest = np.full(count, -np.inf)  # when the shortest round trip was seen
        self._hold, self._until = [_Hold()] * count, np.full(count, -np.inf)
        self._random: dict[int, Stream] = {}

    def last_ns(self, index: Ints, first: Floats, last: Floats, silent: Bools, load: Load) -> Floats:
        """When the last byte of each message leaves the queue.

        Args:
            index: the connection of each message, all different.
            first, last: when its first and its last byte would leave, did nothing hold it up.
            silent: whether all earlier bytes of its connection are acknowledged by then.
        """
        by_first = silent & (self._shortest[index] + _VALID_NS <= first + load.rtt_ns)
        last = last.copy()
        due = by_first | (self._shortest[index] + _VALID_NS <= last + load.rtt_ns) | (first < self._until[index])
        for i in np.flatnonzero(due & (load.rtt_ns > 0)).tolist():
            connection, rtt_ns = int(index[i]), float(load.rtt_ns[i])
            sent = Sent(float(first[i]), float(last[i]), float(load.flow_bytes[i]))
            if by_first[i]:
                self._measure(connection, sent.begin_ns + rtt_ns, 1.0, sent)
            last[i] = self._held(connection, sent, rtt_ns)
        return last

    def _held(self, connection: int, sent: Sent, rtt_ns: float) -> float:
        """When the last byte of a message leaves. Measure the round trip as often as it is due."""
        last_ns = self._hold[connection].last_ns(sent, rtt_ns)
        while (begin := float(self._shortest[connection]) + _VALID_NS) <= last_ns + rtt_ns:
            drained = min(begin, last_ns) + rtt_ns
            self._hold[connection] = hold = _Hold(begin, drained, drained + max(_HOLD_NS, rtt_ns))
            self._until[connection] = hold.until_ns
            self._measure(connection, hold.until_ns, max(1.0, _HOLD_NS / rtt_ns), sent)
            last_ns = hold.last_ns(replace(sent, end_ns=last_ns), rtt_ns)
        return last_ns

    def _measure(self, connection: int, at_ns: float, seen: float, sent: Sent) -> None:
        """Draw when the shortest round trip is seen for the next ten seconds.

        Args:
            seen: number of round trips that were seen until `at_ns`.
        """
        random = self._random.setdefault(connection, Stream(key(self._seed, *self._name, "round trips", connection)))
        # The kernel paces by bursts of at least a segment, and an acknowledgement answers each.
        every_ns = max(BURST_NS, SEGMENT_BYTES * (sent.end_ns - sent.begin_ns) / max(sent.nbytes, 1.0))
        shortest = at_ns
        while True:
            until_shorter = (seen * every_ns + shortest - at_ns) * (1 / random.next() - 1)
            if until_shorter > _VALID_NS:
                break
            shortest += until_shorter
        self._shortest[connection] = shortest


@dataclass(frozen=True, slots=True)
class _Hold:
    """One measurement: nothing is sent until `drained_ns`, then four segments a round trip until `until_ns`."""

    begin_ns: float = -math.inf
    drained_ns: float = -math.inf
    until_ns: float = -math.inf

    def last_ns(self, sent: Sent, rtt_ns: float) -> float:
        """When the last byte of a message leaves the queue that would have left it at `sent.end_ns`."""
        since = max(sent.begin_ns, self.begin_ns)
        if since >= min(self.until_ns, sent.end_ns):
            return sent.end_ns
        unsent_ns = sent.end_ns - since
        unsent = sent.nbytes * unsent_ns / (sent.end_ns - sent.begin_ns)
        resumed = max(sent.begin_ns, self.drained_ns)
        rounds = math.ceil((self.until_ns - resumed) / rtt_ns)
        if unsent <= rounds * _HELD_BYTES:
            return max(sent.end_ns, resumed + (math.ceil(unsent / _HELD_BYTES) - 1) * rtt_ns)
        return max(sent.end_ns, self.until_ns + unsent_ns * (1 - rounds * _HELD_BYTES / unsent))
