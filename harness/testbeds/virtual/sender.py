"""One connection under Reno or CUBIC, followed packet by packet, as Linux sends, loses and repairs.

The narrowest queue of its path is a private one, with the rate that the connection's share has. Packets that it cannot
hold are lost; others can be lost behind it. Acknowledgements arrive a round trip after a packet has left the queue.

* A lost packet is known when three later ones are acknowledged, or a quarter of a round trip after the first of them
  (RFC 8985).
* The window then shrinks in proportion to what is acknowledged, and a connection with less on its way sends a packet
  for each one acknowledged, two once the first hole is filled (RFC 6937, as in Linux).
* If nothing follows a lost packet, a probe is sent after two round trips, then all again after a timeout.
* A paced sender sends its window in half a round trip in slow start and in 5/6 of one afterwards, as Linux's own pacing
  does below the rate that limits it.
* A window grows only if it has limited the sender in the last round trip (RFC 7661, as in Linux).

If the window is large, a packet here stands for up to 1/32 of it.

Connections in equal state share a sender until something tells them apart (`FollowedConnections`). The workers of a
site often send the same at the same time: a round of `direct` between 4,096 workers in 32 regions has 127,000 messages
between regions, but their connections are in fewer than 2,000 states.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual import Bools, Ints
from wanbench.harness.testbeds.virtual.congestion import (
    BURST_BYTES,
    BURST_NS,
    GAIN,
    MIN_WINDOW,
    SEGMENT_BYTES,
    SLOW_START_GAIN,
    Rules,
    pass_rounds,
    whole,
)
from wanbench.harness.testbeds.virtual.streams import Stream

MIN_TIMEOUT_NS = 200_000_000
MAX_TIMEOUT_NS = 120_000_000_000
PARTS = 32  # of a window
_DUPLICATES = 3
_REMEMBERED = 8  # messages of a connection


@dataclass(frozen=True, slots=True)
class ConnectionPath:
    """The path of a message for its connection.

    Attributes:
        rtt_ns: round-trip time without queueing.
        ns_per_byte: of the narrowest queue; 0 if unlimited.
        room: bytes that its buffer holds.
        paced: whether the sender keeps to this rate, so that it never fills the queue.
        loss: probability that a packet sent again is lost.
    """

    rtt_ns: float
    ns_per_byte: float
    room: float = math.inf
    paced: bool = True
    loss: float = 0.0

    @property
    def full(self) -> float:
        """The bytes that fill it; infinite if its rate is unlimited."""
        return self.rtt_ns / self.ns_per_byte if self.ns_per_byte else math.inf


@dataclass(slots=True)
class Sent:
    """Bytes on their way, in the order of their transmission.

    Attributes:
        number: counts transmissions. nbytes: of them. sent_ns: when.
        acked_ns: when their acknowledgement arrives; unused if they are lost.
        again: whether they were sent before.
        later: packets sent later that have been acknowledged. doubted_ns: when the first of these was, or would have
            been, had it been sent at the same time.
    """

    number: int
    nbytes: float
    sent_ns: float
    acked_ns: float
    again: bool = False
    later: float = 0.0
    doubted_ns: float = math.inf

    def delayed(self, by_ns: float, grown: float) -> Sent:
        """The same, sent later, and larger by a factor."""
        return Sent(self.number, self.nbytes * grown, self.sent_ns + by_ns, self.acked_ns + by_ns, self.again)


class Sender:
    """The sending side of one connection.

    Args:
        rules: its congestion control.
        window: in bytes. threshold: window at which slow start ends. largest: what the buffers of hosts let it use.
        random: decides which packets are lost, of a message that loses some, and of those sent again.
    """

    def __init__(
        self, rules: Rules, window: float, threshold: float, random: Stream, *, largest: float = math.inf
    ) -> None:
        self.rules, self.window, self.threshold, self._largest, self.random = rules, window, threshold, largest, random
        self.now = self.queue_ns = self.latest_ns = 0.0  # clock; when the queue is empty; when the last byte leaves it
        self.sent_ns = 0.0  # when something was last sent
        self.flying: deque[Sent] = deque()
        self.missing: list[Sent] = []
        self.again: deque[Sent] = deque()
        self._unsent: deque[tuple[float, bool]] = deque()  # (bytes, whether the packet is lost)
        self._path = ConnectionPath(0.0, 0.0)
        self._paced_ns = 0.0  # when a paced sender may send again
        self._number = 0
        self._pipe = 0.0
        self._heard_ns = 0.0  # when something was last sent or acknowledged
        self._smoothed_ns = 0.0
        self._timeouts = 0
        self._probing = False
        self._recovery: int | None = None  # the first transmission after it began
        self._reducing = False  # in this recovery the window shrinks in proportion; after a timeout it opens again
        self._prior = self._delivered = self._out = 0.0
        self._limited, self._most, self._usage = False, 0.0, 0

    def copy(self) -> Sender:
        """An independent copy."""
        other = object.__new__(Sender)
        other.__dict__.update(self.__dict__)
        other.rules = self.rules.copy()
        other.random = replace(self.random)
        other.flying, other.again, other._unsent = deque(self.flying), deque(self.again), deque(self._unsent)
        other.missing = [replace(sent) for sent in self.missing]
        return other

    @property
    def usable(self) -> float:
        """The window, or what the buffers of hosts leave of it."""
        return min(self.window, self._largest)

    @property
    def quiet(self) -> bool:
        """Whether everything is acknowledged."""
        return not (self.flying or self.missing or self.again)

    @property
    def calm(self) -> bool:
        """Whether no loss is known or still to be repaired."""
        return self._recovery is None and not (self.missing or self.again or self._probing)

    def take_over(
        self,
        now: float,
        sent_ns: float,
        queue_ns: float,
        flying: list[tuple[float, float, float]],
        path: ConnectionPath,
    ) -> None:
        """Begin at `now` at the latest, with what was sent before.

        Args:
            sent_ns: when something was last sent. queue_ns: when the queue is empty, or a paced sender may send.
            flying: what is on its way: (bytes, when the first and the last of them are acknowledged).
            path: of the bytes.
        """
        self.now, self.sent_ns = min(now, sent_ns), sent_ns
        self.queue_ns, self._paced_ns = queue_ns, queue_ns if path.paced else 0.0
        for nbytes, first_ns, last_ns in flying:
            parts = max(1, min(PARTS, round(nbytes / SEGMENT_BYTES)))
            for part in range(1, parts + 1):
                acked_ns = first_ns + (last_ns - first_ns) * part / parts
                self._number += 1
                self.flying.append(Sent(self._number, nbytes / parts, acked_ns - path.rtt_ns, acked_ns))
            self._pipe += nbytes
        self._note_use(limited=self._pipe + 1 >= self.window)

    def advance(self, until: float) -> None:
        """Let time pass without new data."""
        while not self.quiet:
            if self._may_send():
                self._transmit()
                continue
            at = self._next_ns()
            if at > until:
                break
            self._happen(at)
        self.now = max(self.now, until)

    def send(self, ready: float, nbytes: float, losses: int, tail_lost: bool, path: ConnectionPath) -> float:
        """Send a message that is ready at `ready`. Return when all of it has left the narrowest queue.

        Args:
            losses: number of its lost packets. tail_lost: whether the last packet is one of them.
        """
        self._path = path
        if not self._smoothed_ns:
            self._smoothed_ns = path.rtt_ns
        self.advance(ready)
        if self.quiet and self.now > self.sent_ns:
            self.rules.resumed(self.now - self.sent_ns)
        self._unsent.extend(cut(self.random, nbytes, losses, tail_lost))
        while self._unsent:
            self._work()
        if not (self.missing or self.again):
            return self.latest_ns
        later = self.copy()
        while later.missing or later.again:
            later._work()
        return later.latest_ns

    def _work(self) -> None:
        if self._may_send():
            self._transmit()
        elif not self._pass_rounds():
            self._happen(self._next_ns())

    def _pass_rounds(self) -> bool:
        """Let round trips pass in which nothing is lost, and only the window limits the sender.

        Each acknowledgement then lets go what it acknowledges and what the window grows. So what is on its way is the
        same after a round trip, but larger. Return whether any passed.
        """
        opens = self.window < self.threshold and self.window < 2 * self._most  # slow start
        if not self._unsent or opens or self._unsent[0][0] < 3 * self.usable:
            return False
        if not (self.calm and self.flying and self._blocked()):
            return False
        path, before, (nbytes, lost) = self._path, self.usable, self._unsent[0]
        period_ns = path.rtt_ns + self.flying[0].nbytes * path.ns_per_byte
        if self.flying[-1].acked_ns - self.flying[0].acked_ns > path.rtt_ns or self.queue_ns > self.now + path.rtt_ns:
            return False
        limits = min(path.full, math.inf if path.paced else path.room), self._largest
        rules = self.rules if self.window <= self._largest else None
        window, count, sent = pass_rounds(rules, before, limits, nbytes - before, self.now, period_ns)
        if not count:
            return False
        self.window = max(self.window, window)
        self._unsent[0] = nbytes - sent, lost
        self._shift(count * period_ns, whole(window) / self._pipe)
        self._smoothed_ns = period_ns
        return True

    def _shift(self, by_ns: float, grown: float) -> None:
        """What is on its way leaves later, and is larger by a factor."""
        self.flying = deque(sent.delayed(by_ns, grown) for sent in self.flying)
        self._pipe = sum(sent.nbytes for sent in self.flying)  # a factor would multiply the error of rounding, too
        self.now, self._heard_ns, self.sent_ns = self.now + by_ns, self._heard_ns + by_ns, self.sent_ns + by_ns
        self.queue_ns, self._paced_ns = self.queue_ns + by_ns, self._paced_ns + by_ns
        self.latest_ns += by_ns
        self._note_use(limited=self.window <= self._largest)

    def _may_send(self) -> bool:
        if not (self.again or self._unsent):
            return False
        if self._blocked():
            self._note_use(limited=self.window <= self._largest)
            return False
        return self.now >= self._paced_ns

    def _blocked(self) -> bool:
        """Whether the window has no room for the next packet."""
        least = self.again[0].nbytes if self.again else min(self._unsent[0][0], float(SEGMENT_BYTES))
        return self._pipe > 0 and self._pipe + least > self.usable + 1

    def _note_use(self, *, limited: bool) -> None:
        """Remember whether the window limited the sender, as `tcp_cwnd_validate` of Linux does."""
        first = self.flying[0].number if self.flying else self._number
        if first >= self._usage or limited or (not self._limited and self._pipe > self._most):
            self._limited, self._most, self._usage = limited, self._pipe, self._number

    def _transmit(self) -> None:
        if self.again:
            old = self.again.popleft()
            self._put(old.nbytes, again=True, lost=self._path.loss > 0 and self.random.next() < self._path.loss)
            return
        nbytes, lost = self._unsent.popleft()
        if lost:
            self._put(nbytes, again=False, lost=True)
            return
        fits = self.usable - self._pipe
        most = self.usable / PARTS
        if self._path.paced and self._path.ns_per_byte:
            nbytes -= self._skip(nbytes)
            most = max(most, BURST_BYTES, BURST_NS / self._pace())
        part = max(1, min(int(fits / SEGMENT_BYTES + 1e-9), int(most / SEGMENT_BYTES))) * SEGMENT_BYTES
        if nbytes > part:
            self._unsent.appendleft((nbytes - part, False))
            nbytes = float(part)
        self._put(nbytes, again=False, lost=False)

    def _pace(self) -> float:
        """How many nanoseconds for each byte Linux's pacing waits."""
        gain = SLOW_START_GAIN if self.window < self.threshold / 2 else GAIN
        return max(self._path.ns_per_byte, self._smoothed_ns / gain / max(self.window, self._pipe))

    def _skip(self, nbytes: float) -> float:
        """Send bytes that neither the window nor a loss delays; leave those of a round trip."""
        full = self._path.full
        skipped = nbytes - 2 * full
        if (
            skipped <= full
            or self.usable < full + self.usable / PARTS + SEGMENT_BYTES
            or self.missing
            or self._recovery is not None
        ):
            return 0.0
        self.now = self.queue_ns = self._paced_ns = max(self.now, self.queue_ns) + skipped * self._path.ns_per_byte
        self.flying.clear()
        self._pipe = 0.0
        return skipped

    def _put(self, nbytes: float, *, again: bool, lost: bool) -> None:
        """Put bytes into the queue, or what it has room for."""
        path = self._path
        waiting = max(0.0, self.queue_ns - self.now) / path.ns_per_byte if path.ns_per_byte else 0.0
        overflow = waiting + nbytes - path.room
        if overflow > 1 and not path.paced:
            dropped = min(nbytes, math.ceil(overflow / SEGMENT_BYTES) * float(SEGMENT_BYTES))
            if dropped < nbytes:
                self._put(nbytes - dropped, again=again, lost=lost)
            self._lose(dropped, again=again)
            return
        self.queue_ns = max(self.queue_ns, self.now) + nbytes * path.ns_per_byte
        if path.paced and path.ns_per_byte:
            gap_ns = nbytes * self._pace()
            self._paced_ns = self.now + gap_ns - min(gap_ns / 2, self.now - self._paced_ns)
        if lost:
            self._lose(nbytes, again=again)
            return
        self.latest_ns = max(self.latest_ns, self.queue_ns)
        self.flying.append(self._sent(nbytes, self.queue_ns + path.rtt_ns, again=again))
        self._note_use(limited=self._pipe + 1 >= self.window)

    def _lose(self, nbytes: float, *, again: bool) -> None:
        while nbytes > 0:  # each packet is sent again by itself
            part = min(nbytes, float(SEGMENT_BYTES))
            self.missing.append(self._sent(part, math.inf, again=again))
            nbytes -= part

    def _sent(self, nbytes: float, acked_ns: float, *, again: bool) -> Sent:
        self._number += 1
        self._pipe += nbytes
        self._heard_ns = self.sent_ns = self.now
        self._out += nbytes
        return Sent(self._number, nbytes, self.now, acked_ns, again=again)

    def _next_ns(self) -> float:
        """When something happens."""
        at = self.flying[0].acked_ns if self.flying else math.inf
        doubted = [sent.doubted_ns for sent in self.missing if sent.doubted_ns < math.inf]
        if doubted:
            at = min(at, min(doubted) + self._path.rtt_ns / 4)
        if (self.again or self._unsent) and self.now < self._paced_ns and not self._blocked():
            at = min(at, self._paced_ns)
        return at if at < math.inf else self._timer_ns()

    def _timer_ns(self) -> float:
        timeout = min((self._smoothed_ns + MIN_TIMEOUT_NS) * 2.0**self._timeouts, MAX_TIMEOUT_NS)
        if self._probing or self._recovery is not None:
            return self._heard_ns + timeout
        alone = len(self.missing) == 1 and self._path.paced  # gloo has another message in flight, which reveals it
        probe_ns = 2 * self._smoothed_ns + (MIN_TIMEOUT_NS if alone else 0)
        return max(self.now, min(self.missing[0].sent_ns + timeout, self._heard_ns + probe_ns))

    def _happen(self, at: float) -> None:
        self.now = max(self.now, at)
        if self.flying and self.flying[0].acked_ns <= at:
            self._acknowledge(self.flying.popleft())
        elif doubted := [sent for sent in self.missing if sent.doubted_ns + self._path.rtt_ns / 4 <= at]:
            self._mark(doubted)
        elif not self.flying and self.missing and at == self._timer_ns():
            self._time_out()

    def _time_out(self) -> None:
        """Send a probe, or all again."""
        if not self._probing and self._recovery is None:
            self._probing = True
            last = self.missing.pop()
            self._pipe -= last.nbytes
            self._put(last.nbytes, again=True, lost=self._path.loss > 0 and self.random.next() < self._path.loss)
            return
        self._timeouts += 1
        self._probing, self._reducing = False, False
        self.threshold = self.rules.after_loss(self.window) if self._recovery is None else self.threshold
        self._recovery = self._number + 1
        self._give_up(list(self.missing))
        self.window = float(SEGMENT_BYTES)

    def _give_up(self, lost: list[Sent]) -> None:
        for sent in lost:
            self.missing.remove(sent)
            self._pipe -= sent.nbytes
            self.again.append(sent)

    def _acknowledge(self, sent: Sent) -> None:
        self._pipe = max(0.0, self._pipe - sent.nbytes)
        self._heard_ns, self._timeouts = self.now, 0
        rtt_ns = self.now - sent.sent_ns
        if not sent.again and rtt_ns > 0:
            self._smoothed_ns += (rtt_ns - self._smoothed_ns) / 8
        lost = []
        for other in self.missing:
            if other.number < sent.number:
                other.later += max(1.0, sent.nbytes / SEGMENT_BYTES)
                other.doubted_ns = min(other.doubted_ns, max(self.now - self._path.rtt_ns / 4, other.sent_ns + rtt_ns))
                if other.later >= _DUPLICATES or self._recovery is not None or self._probing:
                    lost.append(other)
        probed, self._probing = self._probing and sent.again, self._probing and not sent.again
        if lost:
            self._mark(lost, sent.nbytes)
        elif self._recovery is not None:
            self._recover(sent)
        elif probed:
            self.window = self.threshold = self.rules.after_loss(self.window)
        else:
            self._grow(sent.nbytes, rtt_ns)

    def _mark(self, lost: list[Sent], acked: float = 0.0) -> None:
        """Packets are known to be lost."""
        begins = self._recovery is None
        if begins:
            self._prior = self.window
            self.threshold = self.rules.after_loss(self.window)
            self._recovery, self._reducing = self._number + 1, True
            self._delivered = self._out = 0.0
        self._give_up(lost)
        if self._reducing:
            self._reduce(acked, extra=0.0, least=float(SEGMENT_BYTES) if begins else 0.0)

    def _recover(self, sent: Sent) -> None:
        """An acknowledgement during a recovery, which ends when nothing from before it is missing."""
        if self._reducing:
            self._reduce(sent.nbytes, extra=float(SEGMENT_BYTES) if sent.again else 0.0, least=0.0)
        else:
            self._grow(sent.nbytes, self._path.rtt_ns)
        begun = self._recovery or 0
        if not self.again and all(p.number >= begun and not p.again for p in chain(self.missing, self.flying)):
            if self._reducing:
                self.window = self.threshold
            self._recovery, self._reducing = None, False

    def _reduce(self, acked: float, *, extra: float, least: float) -> None:
        """Proportional rate reduction."""
        self._delivered += acked
        if self._pipe > self.threshold:
            more = self._delivered * self.threshold / self._prior - self._out
        else:
            more = min(self.threshold - self._pipe, max(self._delivered - self._out, acked) + extra)
        self.window = max(self._pipe + max(more, least), MIN_WINDOW / 2)

    def _grow(self, acked: float, rtt_ns: float) -> None:
        if self.window < self.threshold:
            if self.rules.slow_start_ends(self.window, acked, self.now, rtt_ns, paced=self._path.paced):
                self.threshold = self.window
            elif self.window < 2 * self._most:
                self.window = min(self.window + acked, max(self.threshold, self.window))
        elif self._limited:
            self.window = self.rules.avoid(self.window, acked, self.now, rtt_ns)


def cut(random: Stream, nbytes: float, losses: int, tail_lost: bool) -> Iterator[tuple[float, bool]]:
    """Cut a message where packets are lost, at random: yield (bytes, whether they are one lost packet).

    Args:
        losses: number of lost packets. tail_lost: whether the last packet is one of them.
    """
    packets = max(1, math.ceil(nbytes / SEGMENT_BYTES))
    last = [packets - 1] if tail_lost else []
    begin = 0
    for packet in [*random.sample(min(losses - len(last), packets - 1), packets - 1), *last]:
        if packet > begin:
            yield (packet - begin) * float(SEGMENT_BYTES), False
        yield min(float(SEGMENT_BYTES), nbytes - packet * SEGMENT_BYTES), True
        begin = packet + 1
    if begin < packets:
        yield nbytes - begin * float(SEGMENT_BYTES), False


@dataclass(frozen=True, slots=True)
class Message:
    """A message for a sender.

    Attributes:
        ready: when it begins. nbytes: of it. losses: number of its lost packets.
        tail_lost: whether the last packet is one of them. path: of the connection.
    """

    ready: float
    nbytes: float
    losses: int
    tail_lost: bool
    path: ConnectionPath

    @property
    def draws(self) -> bool:
        """Whether random numbers decide what is lost: of it, or of what is sent again of it."""
        return self.losses > 0 or (self.path.loss > 0 and not self.path.paced)


@dataclass
class Followed:
    """A sender, and the connections that it stands for.

    Attributes:
        sender: after the last message.
        connections: their number.
        owner: the connection whose random numbers it draws; None as long as it has not drawn any.
    """

    sender: Sender
    connections: int
    owner: int | None = None
    # The last messages, by the time when they are ready, each with the sender before it.
    _steps: list[tuple[Sender, Message]] = field(default_factory=list)

    @property
    def last_ready_ns(self) -> float:
        """When its last message was ready."""
        return self._steps[-1][1].ready

    def part(self, connections: int) -> Followed:
        """Take some of its connections away: an independent copy for them."""
        self.connections -= connections
        return Followed(self.sender.copy(), connections, self.owner, list(self._steps))

    def draw_from(self, owner: int, random: Stream) -> None:
        """From now on it stands for one connection, which draws random numbers."""
        self.owner, self.sender.random = owner, random
        self._steps = [(before.copy(), message) for before, message in self._steps]
        for before, _ in self._steps:
            before.random = replace(random)

    def send(self, message: Message) -> int:
        """Send a message. One that was ready before the last ones goes before them. Return when it has left."""
        later = [step for _, step in self._steps if step.ready > message.ready]
        if later:
            self.sender = self._steps[-len(later)][0].copy()
            del self._steps[-len(later) :]
        lefts = []
        for step in (message, *later):
            self._steps.append((self.sender.copy(), step))
            lefts.append(self.sender.send(step.ready, step.nbytes, step.losses, step.tail_lost, step.path))
        del self._steps[:-_REMEMBERED]
        return round(lefts[0])


@dataclass(frozen=True, slots=True)
class Group:
    """Equal messages of a round, on connections in equal state.

    Attributes:
        positions: of the messages in the round. followed: their sender.
    """

    positions: Ints
    followed: Followed

    @property
    def first(self) -> int:
        """The position of one of them."""
        return int(self.positions[0])


class FollowedConnections:
    """Which of some connections are followed, and by which sender.

    Args:
        count: number of connections. stream: returns a connection's own random numbers.
    """

    def __init__(self, count: int, stream: Callable[[int], Stream]) -> None:
        self._stream = stream
        self._random: dict[int, Stream] = {}  # of connections that have drawn some
        self._all: dict[int, Followed] = {}
        self._number = np.full(count, -1)  # of the sender in `_all`; -1 if not followed
        self._numbers = itertools.count()

    def among(self, index: Ints) -> Bools:
        """Which of these connections are followed."""
        return self._number[index] >= 0

    def groups(self, index: Ints, told_apart: Callable[[], Sequence[NDArray[Any]]]) -> list[Group]:
        """The senders of a round's messages. Connections whose messages differ no longer share one.

        Args:
            index: the connection of each message. told_apart: returns what tells messages apart.
        """
        groups: list[Group] = []
        if not self._all:
            return groups
        for positions in alike(np.flatnonzero(self.among(index)), [self._number[index], *told_apart()]):
            followed = self._all[int(self._number[index[positions[0]]])]
            if followed.connections > len(positions):
                followed = self.begin(index[positions], followed.part(len(positions)))
            groups.append(Group(positions, followed))
        return groups

    def begin(self, connections: Ints, followed: Followed) -> Followed:
        """Follow connections by a sender."""
        number = next(self._numbers)
        self._all[number], self._number[connections] = followed, number
        return followed

    def send(self, followed: Followed, connection: int, message: Message) -> int:
        """Send a message on all connections of a sender; `connection` is one of them. Return when it has left."""
        if message.draws and followed.owner is None:
            followed.draw_from(connection, self._random.get(connection) or self._stream(connection))
        return followed.send(message)

    def end(self, connections: Ints) -> Sender:
        """No longer follow connections that share a sender, which is returned."""
        number = int(self._number[connections[0]])
        followed = self._all[number]
        followed.connections -= len(connections)
        if not followed.connections:
            del self._all[number]
        if followed.owner is not None:
            self._random[followed.owner] = followed.sender.random
        self._number[connections] = -1
        return followed.sender


def alike(positions: Ints, columns: Sequence[NDArray[Any]]) -> list[Ints]:
    """Group positions at which all columns have equal values."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    keys = zip(*(column[positions].tolist() for column in columns), strict=True)
    for position, values in zip(positions.tolist(), keys, strict=True):
        groups.setdefault(values, []).append(position)
    return [np.array(group) for group in groups.values()]


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
