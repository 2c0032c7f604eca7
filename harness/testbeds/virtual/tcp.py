"""The time that TCP adds to a message: a window that opens over several round trips, and retransmissions.

The model of each connection under Reno or CUBIC (`virtual.congestion`; BBR has its own, `virtual.bbr`):

* It begins with 10 segments and doubles the window each round trip (slow start) until its first loss, or
  with CUBIC until acknowledgements show a full path. After that the window grows as the congestion control says.
* The window grows to at most twice the bytes last in flight, as in Linux: also beyond what the buffers of hosts
  (tcp_rmem, tcp_wmem) let through of it.
* A message that its window lets through at once takes the time of its bytes; if its sender is paced, also the time in
  which Linux's pacing spreads them over a part of a round trip.
* A message that must wait for its window, loses packets or overflows a buffer is followed packet by packet
  (`virtual.sender`), and so are all others of its connection until everything is acknowledged.
* A sender that is not paced, as in gloo, sends what its window allows at once, also of several messages, and loses what
  the buffer of its narrowest queue cannot hold.
* With `slow_start_after_idle`, each retransmission timeout (RTT + 200 ms) of silence halves the window, down to 10
  segments.
* Packets lost in an outage are sent again by a probe after two round trips, and then after timeouts that begin at RTT +
  200 ms and double each time, as in Linux. After a timeout the window restarts at one segment.

Messages of a connection follow one another and share its window and the buffer of its narrowest queue (`LastMessages`).
Connections that are followed packet by packet share a sender while they are in equal state.

Not modelled: delayed acknowledgements, and the bytes and the queueing of acknowledgements in the opposite direction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.emulators.plan import payload_bytes
from wanbench.harness.plan.pacing import room
from wanbench.harness.testbeds.virtual import Bools, Floats, Ints
from wanbench.harness.testbeds.virtual.congestion import (
    BURST_BYTES,
    BURST_NS,
    GAIN,
    MIN_WINDOW,
    SEGMENT_BYTES,
    SLOW_START_GAIN,
    Cubic,
    Reno,
    Rules,
)
from wanbench.harness.testbeds.virtual.sender import (
    MIN_TIMEOUT_NS,
    PARTS,
    ConnectionPath,
    Followed,
    FollowedConnections,
    Group,
    Lost,
    Message,
    Sender,
    alike,
    attempts,
)
from wanbench.harness.testbeds.virtual.streams import Stream, key
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.comm.mesh import UNSENT_S
from wanbench.workloads.comm.windows import in_turns
from wanbench.workloads.process.namespace import BUFFER_BYTES

INITIAL_WINDOW = 10.0 * SEGMENT_BYTES
NEVER = 1 << 60  # nanoseconds: an event at this time does not happen
_ANY_BYTES = 1e18
_LAST = 8  # messages of a connection that can be on their way


@dataclass(frozen=True)
class Tcp:
    """The modelled features of TCP.

    Attributes:
        ramp: windows. Without them only rates limit a message, and a loss costs only its round trip.
        slow_start_after_idle: the Linux setting of that name.
        congestion: "reno", "cubic" or "bbr".
        largest_window: what the buffers of hosts let a connection have in flight, in bytes.
        send_queue: payload that a sender's largest buffer holds, in bytes.
    """

    ramp: bool = True
    slow_start_after_idle: bool = False
    congestion: str = "reno"
    largest_window: float = BUFFER_BYTES / 2
    send_queue: float = math.inf


def in_units(nbytes: Any, mtu: int) -> Any:
    """Bytes, or an array of them, in the unit of `virtual.congestion`."""
    return nbytes * SEGMENT_BYTES / payload_bytes(mtu)


@dataclass(frozen=True)
class Load:
    """The load of a round's messages on their connections. Arrays have the shape (messages,). Bytes are `in_units`.

    A route has the same load in every round, so what follows from it is computed once.

    Attributes:
        flow_bytes: payload per connection; a message to a site can stand for one to each of its workers.
        rtt_ns: round-trip time without queueing.
        drain_ns: time that the round occupies the busiest queue of each message.
        buffer_bytes: payload per connection that the buffer of the narrowest queue holds.
        loss: probability that a packet is lost, independently of others.
    """

    flow_bytes: Floats
    rtt_ns: Ints
    drain_ns: Ints
    buffer_bytes: Floats
    loss: Floats
    _at_pace: dict[float, "Load"] = field(default_factory=dict, init=False)
    _most: dict[tuple[float, float], Floats] = field(default_factory=dict, init=False)

    @cached_property
    def full(self) -> Floats:
        """The bytes that fill the path of each message; infinite if its rate is unlimited."""
        return np.where(self.drain_ns > 0, self.rtt_ns * self.flow_bytes / np.maximum(self.drain_ns, 1), np.inf)

    @cached_property
    def ns_per_byte(self) -> Floats:
        """The time of a byte of each message in the busiest queue."""
        rate: Floats = self.drain_ns / np.maximum(self.flow_bytes, 1.0)
        return rate

    def at_pace(self, room: float) -> "Load":
        """The load with the time of its bytes at the rate of a sender, a share `room` of the path's."""
        if room not in self._at_pace:
            self._at_pace[room] = replace(self, drain_ns=np.rint(self.drain_ns / room).astype(np.int64))
        return self._at_pace[room]

    def most(self, largest: float, queue: float) -> Floats:
        """The largest window of each message's connection, given those of its hosts and what a sender's queue holds."""
        if (largest, queue) not in self._most:
            self._most[largest, queue] = self._largest_window(largest, queue)
        return self._most[largest, queue]

    def _largest_window(self, largest: float, queue: float) -> Floats:
        if queue == math.inf:
            return np.full(len(self.rtt_ns), largest)
        full = np.clip(self.full, 1.0, _ANY_BYTES)
        unsent = full * UNSENT_S * 1e9 / np.maximum(self.rtt_ns, 1)
        averages = np.minimum(largest, in_turns(full, queue, unsent))
        most: Floats = np.where(full + unsent > queue, averages, largest)
        return most


class Connections:
    """The windows of connections that carry messages of one kind.

    A message that its window and the buffer let through at once, and that loses nothing, is computed with all others of
    its round. Any other is followed packet by packet (`virtual.sender`), until everything is acknowledged.

    Args:
        tcp: the modelled features. count: number of connections.
        paced: whether senders keep to their share of the rate.
        seed, name: of the random streams that decide which packets are lost.
        mtu: bytes of a packet.
    """

    def __init__(
        self,
        tcp: Tcp,
        count: int,
        *,
        paced: bool = True,
        seed: int = 0,
        name: Sequence[object] = (),
        mtu: int = MTU,
    ) -> None:
        self._tcp, self.paced = tcp, paced
        self._seed, self._name = seed, name
        # A paced sender leaves room for acknowledgements.
        self._room, self._largest = room(mtu) if paced else 1.0, max(MIN_WINDOW, in_units(tcp.largest_window, mtu))
        self._queue = in_units(tcp.send_queue, mtu) if paced else math.inf
        self._window, self._threshold = np.full(count, INITIAL_WINDOW), np.full(count, np.inf)
        self._last_sent = np.zeros(count, np.int64)
        self._last_arrival, self._last_begin = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._cubic: dict[int, Rules] = {}
        self._followed = FollowedConnections(count, lambda connection: Stream(key(seed, *name, connection)))
        self._last = LastMessages(count, paced=paced)
        self._resumes: dict[int, int] = {}  # when a connection held by an outage gets through again

    def stall(self, index: Ints, ready: Ints, load: Load, losses: Ints | None) -> tuple[Ints, Ints]:
        """How TCP delays messages: (again_ns, left_ns), each of the shape (messages,).

        `again_ns` is how long lost packets are sent again, which begins when they have been in the queues; `left_ns` is
        when the last byte of each message would leave, were the queues empty.

        Args:
            index: the connection of each message, all different. ready: when each message begins. load: their load.
            losses: number of lost packets of each message, and 1 for each that loses its last packet, shape
                (2, messages); None if no packet is lost.
        """
        if not self._tcp.ramp:
            return self._without_windows(ready, load, losses)
        load = load.at_pace(self._room)
        told_apart = partial(self._told_apart, index, ready, load, losses)
        groups = self._forget_quiet(self._followed.groups(index, told_apart), index, ready, load)
        opened, most = self._after_idle(index, ready, load), load.most(self._largest, self._queue)
        window = np.minimum(opened, most)
        _, wait_ns, held_ns = behind = self._last.behind(index, ready)
        free, room = self._last.bursts(index, ready, behind, window, load)
        waits = load.flow_bytes > np.minimum(free, room)
        slow = (waits & ~self._covers(window, self._threshold[index], load)) | self._followed.among(index)
        if losses is not None:
            slow |= losses[0] > 0
        flying = np.minimum(np.minimum(load.flow_bytes, load.full) if self.paced else load.flow_bytes, most)
        grown = np.minimum(np.maximum(opened, 2 * flying), opened + load.flow_bytes)
        after = np.minimum(grown, np.maximum(self._threshold[index], opened))
        stall = np.rint(held_ns + self._paced_ns(index, window, load)).astype(np.int64)
        drained = ready + wait_ns + load.drain_ns
        self._pass_idle(index, ready, load, ~slow)
        groups += self._begin(slow, told_apart, index, opened, ready, load)
        last_ns = np.minimum(np.minimum(after, most) / np.maximum(load.flow_bytes, 1.0), 1.0) * load.drain_ns
        self._window[index] = after
        flying = np.minimum(flying, after)
        self._last.add(index, ready, behind, drained, stall, load.rtt_ns, flying, after - opened, last_ns)
        left_ns = np.rint(drained + stall).astype(np.int64)
        sent = self._follow(groups, index, ready, load, losses, left_ns)
        self._last_sent[index] = np.maximum(self._last_sent[index], sent)
        return np.zeros(len(index), np.int64), left_ns

    def _covers(self, window: Floats, threshold: Floats, load: Load) -> Bools:
        """Whether a sender never waits: it is paced, and its window fills the path.

        If packets can be lost, a window that has once been reduced is followed, because the next loss depends on it.
        """
        if not self.paced:
            return np.zeros(len(window), np.bool_)
        fills = window >= load.full * (1 + 1 / PARTS) + BURST_BYTES
        covered: Bools = fills & ((load.loss == 0) | np.isinf(threshold))
        return covered

    def _paced_ns(self, index: Ints, window: Floats, load: Load) -> Floats:
        """How much longer the kernel's pacing, by the window, makes messages that fit into it."""
        if not self.paced:
            return np.zeros(len(index))
        gain = np.where(window < self._threshold[index] / 2, SLOW_START_GAIN, GAIN)
        share, limited = load.ns_per_byte, load.drain_ns > 0
        pace = np.maximum(load.rtt_ns / gain / window, share)
        burst = np.maximum(np.floor(BURST_NS / pace / SEGMENT_BYTES) * SEGMENT_BYTES, BURST_BYTES)
        before_last = np.maximum(np.ceil(load.flow_bytes / burst) - 1, 0) * burst
        sent_ns = (before_last - np.minimum(before_last, burst) / 2) * pace + (load.flow_bytes - before_last) * share
        return np.where(limited, np.maximum(sent_ns - load.drain_ns, 0.0), 0.0)

    def _without_windows(self, ready: Ints, load: Load, losses: Ints | None) -> tuple[Ints, Ints]:
        again = np.zeros(len(ready), np.int64)
        if losses is not None:
            again = (losses[0] > 0) * load.rtt_ns + losses[1] * self.probe_ns(load)
        return again, ready + load.drain_ns + again

    def _told_apart(self, index: Ints, ready: Ints, load: Load, losses: Ints | None) -> list[NDArray[Any]]:
        """What tells the messages of a round apart. One that draws random numbers is like no other."""
        draws = np.zeros(len(index), np.bool_) if losses is None else losses[0] > 0
        if not self.paced:
            draws = draws | (load.loss > 0)
        sizes = [load.flow_bytes, load.rtt_ns, load.drain_ns, load.loss, load.buffer_bytes]
        return [ready, *sizes, np.where(draws, index, -1)]

    def _forget_quiet(self, groups: list[Group], index: Ints, ready: Ints, load: Load) -> list[Group]:
        """Stop to follow connections whose bytes are all acknowledged, or that neither a loss nor the window delays.

        Return the groups that are left.
        """
        window, threshold = np.zeros((2, len(index)))
        for group in groups:
            sender, begin = group.followed.sender, float(ready[group.first])
            if begin >= group.followed.last_ready_ns:
                sender.advance(begin)
                window[group.first] = np.inf if sender.quiet else sender.usable * sender.calm
                threshold[group.first] = sender.threshold
        covered = self._covers(window, threshold, load) if groups else window
        followed = []
        for group in groups:
            if window[group.first] == np.inf or (window[group.first] and covered[group.first]):
                self._forget(index[group.positions])
            else:
                followed.append(group)
        return followed

    def _forget(self, connections: Ints) -> None:
        """Keep what remains of connections that shared a sender and are no longer followed."""
        sender = self._followed.end(connections)
        self._window[connections], self._threshold[connections] = sender.window, sender.threshold
        if isinstance(sender.rules, Cubic):
            self._cubic.update((connection, sender.rules.copy()) for connection in connections.tolist())

    def _pass_idle(self, index: Ints, ready: Ints, load: Load, among: Bools) -> None:
        """CUBIC's clock stands still while a connection is idle. A sender does this by itself."""
        if not self._cubic:
            return
        idle = ready - self._last_sent[index]
        for i in np.flatnonzero(among & (idle > load.rtt_ns)).tolist():
            if (rules := self._cubic.get(int(index[i]))) is not None:
                rules.resumed(float(idle[i]))

    def _begin(
        self,
        slow: Bools,
        told_apart: Callable[[], list[NDArray[Any]]],
        index: Ints,
        window: Floats,
        ready: Ints,
        load: Load,
    ) -> list[Group]:
        """Follow those slow connections that are not followed yet: one sender for all in equal state."""
        positions = np.flatnonzero(slow & ~self._followed.among(index))
        if not len(positions):
            return []
        state = [window, self._threshold[index], self._last_sent[index], *self._last.state(index, ready)]
        if self._cubic:
            state.append(np.array([str(self._cubic.get(connection)) for connection in index.tolist()]))
        groups = []
        for positions_alike in alike(positions, [*told_apart(), *state]):
            sender = self._sender(int(index[positions_alike[0]]), window, load, int(positions_alike[0]), ready)
            groups.append(
                Group(
                    positions_alike,
                    self._followed.begin(index[positions_alike], Followed(sender, len(positions_alike))),
                )
            )
        return groups

    def _sender(self, connection: int, window: Floats, load: Load, i: int, ready: Ints) -> Sender:
        """The state of a connection when its message begins."""
        rules = _RENO if self._tcp.congestion == "reno" else self._cubic.get(connection, Cubic())
        begin, path = float(ready[i]), self._path(load, i)
        flying, grown = self._last.unacknowledged(connection, begin, path.ns_per_byte)
        sender = Sender(
            rules.copy(),
            float(window[i]) - grown,
            float(self._threshold[connection]),
            Stream(0),
            largest=float(load.most(self._largest, self._queue)[i]),
        )
        sent_ns, empty_ns = float(self._last_sent[connection]), self._last.empty_ns(connection)
        sender.take_over(begin, sent_ns, empty_ns, flying, path)
        return sender

    def _follow(
        self,
        groups: list[Group],
        index: Ints,
        ready: Ints,
        load: Load,
        losses: Ints | None,
        left_ns: Ints,
    ) -> Ints:
        """Send messages packet by packet, and set when they leave. Return when all messages of the round are sent."""
        sent = left_ns.copy()
        for group in groups:
            i, positions = group.first, group.positions
            lost, tail_lost = (0, 0) if losses is None else losses[:, i].tolist()
            message = Message(float(ready[i]), float(load.flow_bytes[i]), lost, bool(tail_lost), self._path(load, i))
            left_ns[positions] = self._followed.send(group.followed, int(index[i]), message)
            self._last.replace(index[positions], left_ns[positions], load.rtt_ns[positions])
            sent[positions] = round(group.followed.sender.sent_ns)
        return sent

    def _path(self, load: Load, i: int) -> ConnectionPath:
        ns_per_byte = float(load.drain_ns[i]) / max(float(load.flow_bytes[i]), 1.0)  # shared with others of its round
        room, loss = float(load.buffer_bytes[i]), float(load.loss[i])
        return ConnectionPath(float(load.rtt_ns[i]), ns_per_byte, room, self.paced, loss)

    def _after_idle(self, index: Ints, ready: Ints, load: Load) -> Floats:
        """The windows of connections after their silence."""
        window: Floats = self._window[index]
        if not self._tcp.slow_start_after_idle:
            return window
        timeouts = np.clip((ready - self._last_sent[index]) // (load.rtt_ns + MIN_TIMEOUT_NS), 0, 60)
        kept: Floats = np.maximum(window * 0.5**timeouts, np.minimum(window, INITIAL_WINDOW))
        return kept

    def sent_ns(self, connection: int) -> int:
        """When the last byte of a connection's messages was first sent."""
        return int(self._last_sent[connection])

    def probe_ns(self, load: Load) -> Ints:
        """How much longer messages take whose last packet is lost, so that a probe must reveal it.

        For a single packet the probe waits 200 ms longer, but gloo has two messages in flight: the other reveals it.
        """
        alone = (load.flow_bytes <= SEGMENT_BYTES) & self.paced
        late: Ints = load.rtt_ns + np.where(alone, MIN_TIMEOUT_NS, 0)
        return late

    def resume_ns(self, index: int, lost: Lost, outages: Sequence[tuple[int, int]]) -> int:
        """When the packets lost in an outage arrive, without the rest of the message; `NEVER` or later if they do not.

        Args:
            index: the connection.
            lost: the lost packets.
            outages: (begin, end) of those of its path.
        """
        resumed = self._resumes.get(index, 0)
        if resumed > lost.at_ns:  # the connection already retransmits, and this message is behind
            return resumed
        for time, probe in attempts(lost):
            healed = next((end for begin, end in outages if begin <= time < end), None)
            if healed is not None and healed >= NEVER:
                return NEVER
            if healed is None:
                self._resumes[index] = time
                return time + (0 if not self._tcp.ramp else self._restart(index, lost, probe=probe))
        raise AssertionError("attempts never end")

    def _restart(self, index: int, lost: Lost, *, probe: bool) -> int:
        """The nanoseconds that the window adds to a retransmission."""
        connection = np.array([index])
        if self._followed.among(connection)[0]:
            self._forget(connection)
        if probe:  # it only waits for the acknowledgement of the probe
            self._window[index] = max(self._window[index] / 2, MIN_WINDOW)
            self._threshold[index] = self._window[index]
            return lost.rtt_ns
        sender = Sender(_RENO, float(SEGMENT_BYTES), math.inf, Stream(0), largest=self._largest)
        sender.send(0.0, lost.nbytes, 0, False, ConnectionPath(float(lost.rtt_ns), 0.0))
        self._window[index], self._threshold[index] = sender.window, math.inf
        return round(sender.latest_ns)

    def in_order(self, index: Ints, begin: Ints, arrival: Ints) -> Ints:
        """Return arrival times such that no message overtakes an earlier one of its connection.

        Messages come round by round, so one that begins at `begin` can come after one that begins later.
        """
        follows = begin >= self._last_begin[index]
        arrival = np.where(follows, np.maximum(arrival, self._last_arrival[index]), arrival)
        self._last_arrival[index] = np.where(follows, arrival, self._last_arrival[index])
        self._last_begin[index] = np.maximum(begin, self._last_begin[index])
        return arrival


_RENO = Reno()


Behind = tuple[Floats, Floats, Floats]


class LastMessages:
    """The last message of each connection.

    A paced message begins when the last one has left. Others enter the queue as soon as the window lets them.

    Args:
        count: number of connections. paced: whether senders keep to their share of the rate.
    """

    def __init__(self, count: int, *, paced: bool) -> None:
        self._paced = paced
        self._ready = np.zeros(count)
        self._drained, self._sent = np.zeros(count), np.zeros(count)  # when it has left, without and with its stalls
        self._entered = np.zeros(count)  # when its last byte is in the queue
        # Of the last messages, latest first: when the last byte is acknowledged, the bytes that are on their way until
        # then, and what they add to the window.
        self._acknowledged, self._flying, self._grown = np.zeros((3, _LAST, count))

    def behind(self, index: Ints, ready: Ints) -> Behind:
        """Return (begin, wait_ns, held_ns): messages of a connection leave one after another.

        `wait_ns` is how long the last message still needs for its bytes at the rate, `held_ns` how much longer it needs
        because of its stalls.
        Messages come round by round. One that was ready before the last message does not wait for it.
        """
        follows = ready >= self._ready[index]
        begin = np.maximum(ready, np.where(follows, self._entered[index], 0.0))
        wait_ns = np.where(follows, np.maximum(self._drained[index] - ready, 0.0), 0.0)
        held_ns = np.where(follows, np.maximum(self._sent[index] - ready - wait_ns, 0.0), 0.0)
        return begin, wait_ns, held_ns

    def bursts(self, index: Ints, ready: Ints, behind: Behind, window: Floats, load: Load) -> tuple[Floats, Floats]:
        """What each sender can send at once, behind the last message: (free, room).

        `free` are the bytes of the window that are not occupied, `room` those that the buffer of the narrowest queue
        still holds.
        """
        begin, ns_per_byte = behind[0], load.ns_per_byte
        last, sizes = self._acknowledged[:, index], self._flying[:, index]
        left_ns = np.where(ready >= self._ready[index], np.clip(last - begin, 0.0, sizes * ns_per_byte), 0.0)
        unacknowledged = np.divide(left_ns, sizes * ns_per_byte, out=np.zeros_like(left_ns), where=left_ns > 0)
        flying = (sizes * unacknowledged).sum(axis=0)
        queued = np.minimum(flying, np.maximum(self._drained[index] - begin, 0.0) / np.maximum(ns_per_byte, 1e-9))
        free = np.maximum(window - flying - (self._grown[:, index] * unacknowledged).sum(axis=0), 0.0)
        room = np.full(len(index), np.inf) if self._paced else np.maximum(load.buffer_bytes - queued, 0.0)
        return free, room

    def add(
        self,
        index: Ints,
        ready: Ints,
        behind: Behind,
        drained: Floats,
        stall: Ints,
        rtt_ns: Ints,
        flying: Floats,
        grown: Floats,
        last_ns: Floats,
    ) -> None:
        """Set the last messages.

        Args:
            behind: as `behind` returned. drained: when their bytes have left at the rate. stall: how much later they
            have. flying: the bytes that are on their way then. grown: what they add to the window. last_ns: how
            long the bytes that their last window lets go take at the rate.
        """
        sent = drained + stall
        begin, _, held_ns = behind
        entered = np.where(stall > held_ns, np.maximum(begin, sent - last_ns), begin)
        self._entered[index] = sent if self._paced else entered
        self._ready[index] = ready
        self._drained[index], self._sent[index] = drained, sent
        for last, value in (
            (self._acknowledged, sent + rtt_ns),
            (self._flying, flying),
            (self._grown, np.maximum(grown, 0.0)),
        ):
            last[1:, index] = last[:-1, index]
            last[0, index] = value

    def unacknowledged(
        self, connection: int, ready: float, ns_per_byte: float
    ) -> tuple[list[tuple[float, float, float]], float]:
        """What is on its way at `ready`, and what it adds to the window.

        The oldest is the first: (bytes, when the first and the last of them are acknowledged).
        """
        pieces, grown = [], 0.0
        for number in reversed(range(_LAST)):
            last, nbytes = float(self._acknowledged[number, connection]), float(self._flying[number, connection])
            length = nbytes * ns_per_byte
            if last > ready and nbytes:
                share = min(last - ready, length) / length if length else 1.0
                pieces.append((nbytes * share, last - length * share, last))
                grown += float(self._grown[number, connection]) * share
        return pieces, grown

    def acknowledged_ns(self, index: Ints) -> Floats:
        """When all bytes of each connection's last messages are acknowledged."""
        return np.asarray(self._acknowledged[:, index].max(axis=0))

    def empty_ns(self, connection: int) -> float:
        """When the last byte leaves the queue."""
        return float(max(self._drained[connection], self._sent[connection]))

    def state(self, index: Ints, ready: Ints) -> list[Floats]:
        """What `unacknowledged` and `empty_ns` depend on. Connections with equal values are in equal state."""
        last, flying, grown = (values[:, index] for values in (self._acknowledged, self._flying, self._grown))
        values = np.concatenate([np.where(last > ready, numbers, 0.0) for numbers in (last, flying, grown)])
        empty_ns = np.maximum(self._drained[index], self._sent[index])
        return [empty_ns, *[column for column in values if column.any()]]

    def replace(self, index: Ints, left_ns: Ints, rtt_ns: Ints) -> None:
        """The last messages, which were followed packet by packet, leave at `left`."""
        self._entered[index] = self._drained[index] = self._sent[index] = left_ns
        self._acknowledged[0, index] = left_ns + rtt_ns
        self._grown[0, index] = 0.0
