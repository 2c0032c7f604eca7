"""Operations in flight, in global time order: the fabric of `workloads.comm.memory`.

Workers are switched only when they wait or sleep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from greenlet import getcurrent

from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.collectives import ALL_GATHERS, COLLECTIVES, Plan, Round, Rounds
from wanbench.harness.testbeds.virtual.datagrams import ExchangeFlight, Exchanges, Waiting
from wanbench.harness.testbeds.virtual.kernel import Simulation, refuse_inside_autograd
from wanbench.harness.testbeds.virtual.network import Flying, Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import NEVER
from wanbench.workloads.comm.base import CommError, Terms
from wanbench.workloads.comm.blocks import Blocks
from wanbench.workloads.comm.mesh import UNSENT_BYTES, UNSENT_S

Paces = Callable[[int], Sequence[Sequence[float | None]]]

_COLLECTIVE, _MESSAGE = 0, 1
_TIMEOUT, _FIRST = 5, 6  # 2 to 4 are the events of datagrams


class Flight:
    """One operation: when each rank has joined, and when it ends for each rank, once this is known.

    A message has one end, that of its receiver.
    """

    __slots__ = ("ends", "expected", "firsts", "gathers", "joined", "leaves", "missing", "nbytes", "sent", "waiting")

    def __init__(self, nbytes: int, ranks: int, *, gathers: bool = False) -> None:
        self.nbytes = nbytes
        self.gathers = gathers
        self.joined = [0] * ranks
        self.missing = ranks
        self.ends: list[int] | None = None
        self.sent: int | None = None  # when a message was sent, and when its receiver asked for it
        self.expected: int | None = None
        self.leaves: Flight | None = None  # the same message as its sender sees it
        self.waiting: list[Waiting] = []
        self.firsts: list[Callable[[], None]] = []

    def end_for(self, rank: int) -> int | None:
        """When it ends for a rank, or None if this is not known yet."""
        if self.ends is None:
            return None
        return self.ends[rank] if len(self.ends) > 1 else self.ends[0]


class SimulatedFabric:
    """Connects the workers of a simulation by a network and a collective.

    Args:
        simulation: the simulation of the workers.
        network: the network for their messages.
        collective: name of the all-reduce model.
        channels: number of channels, to which operations are assigned round-robin.
        one_shot_bytes: the largest vector that an all-reduce of `direct` sends whole to every rank.
        paces: returns the rates of a rank, as `harness.plan.pacing.paces` does; None if messages are not paced.
    """

    def __init__(
        self,
        simulation: Simulation,
        network: VirtualNetwork,
        collective: str,
        channels: int,
        *,
        one_shot_bytes: int = 0,
        paces: Paces | None = None,
    ) -> None:
        self._simulation, self._network = simulation, network
        self._kind, self._channels = COLLECTIVES[collective], channels
        self._gather, self._collective = ALL_GATHERS.get(collective), collective
        self._one_shot_bytes, self._paces = one_shot_bytes, paces
        self._plans: dict[tuple[bool, int], Plan] = {}
        self._pairs = ""  # the kind of all connections of `direct`, if it is not the usual one
        self.members: Sequence[int] = range(len(network.site_of))  # the worker of the simulation that has each rank
        self._flights: dict[int, Flight] = {}
        self._queue: deque[tuple[int, Flight]] = deque()
        # The places that operations can take, by when the last one in each ended. None: there are any number.
        at_first, per_channel = np.zeros(len(self.members), np.int64), self._kind.operations_per_channel
        self._freed: deque[Ints] | None = None if per_channel is None else deque([at_first] * per_channel * channels)
        self._messages: dict[tuple[int, int, int], Flight] = {}
        self._routes: dict[tuple[int, int, int], Route] = {}
        self._exchanges = Exchanges(simulation, network)
        self._parked: dict[Waiting, None] = {}  # those that several events can wake

    # ---------------------------------------------------------------- called by workers

    together = nullcontext()  # workers share one thread

    def now(self) -> int:
        """The time in nanoseconds."""
        return self._simulation.now

    def sleep(self, rank: int, ns: int) -> None:
        """Let `ns` pass for this worker. Raises: SwitchError, if it must not be switched now."""
        refuse_inside_autograd()
        self._simulation.sleep_until(self._simulation.now + ns, rank)

    def collective(self, rank: int, sequence: int, nbytes: int, *, gathers: bool) -> Flight:
        """Join an all-reduce or an all-gather.

        Raises:
            CommError: the size differs from that of earlier workers, or the collective has no all-gather.
        """
        if gathers and self._gather is None:
            gathering = ", ".join(ALL_GATHERS)
            raise CommError(f"virtual: collective {self._collective!r} has no all_gather; expected one of {gathering}")
        flight = self._flights.get(sequence)
        operation = "all_gather" if gathers else "all_reduce"
        if flight is None:
            flight = self._flights[sequence] = Flight(nbytes, len(self.members), gathers=gathers)
        elif flight.gathers != gathers:
            raise CommError(f"ranks disagree on operation {sequence}: rank {rank} issued {operation}, others did not")
        elif flight.nbytes != nbytes:
            sizes = f"rank {rank} gave {nbytes} bytes, others {flight.nbytes}"
            raise CommError(f"ranks disagree on the size of {operation} {sequence}: {sizes}")
        flight.joined[rank] = self._simulation.now
        flight.missing -= 1
        if not flight.missing:
            del self._flights[sequence]
            self._queue.append((sequence, flight))
            self._admit()
        return flight

    def message(self, src: int, dst: int, number: int, nbytes: int) -> Flight:
        """Send a message. It waits at the receiver until `expect` takes it; with gloo, until it has asked for it.

        The sender has finished when the kernel has all of it: with gloo, which is not paced, at once. A message to
        itself takes no time.
        """
        flight = self._message(src, dst, number)
        flight.nbytes, flight.sent = nbytes, self._simulation.now
        flight.leaves = Flight(nbytes, 0)
        if src == dst:
            flight.ends = flight.leaves.ends = [flight.sent]
            self._wake(flight)
            return flight.leaves
        if self._kind.asks:
            flight.leaves.ends = [flight.sent]
        self._begin_message(flight, flight.sent, src, dst, number)
        return flight.leaves

    def expect(self, src: int, dst: int, number: int) -> Flight:
        """Return the flight of a message, which its sender and receiver share in any order of calls."""
        flight = self._message(src, dst, number)
        flight.expected = self._simulation.now
        if flight.sent is not None and self._kind.asks:
            self._begin_message(flight, flight.sent, src, dst, number)
        return flight

    def _message(self, src: int, dst: int, number: int) -> Flight:
        flight = self._messages.pop((src, dst, number), None)
        if flight is None:
            flight = self._messages[src, dst, number] = Flight(0, 0)
        return flight

    def _begin_message(self, flight: Flight, begin: int, src: int, dst: int, number: int) -> None:
        """Begin a message that is sent and, if the collective asks for messages, asked for."""
        if self._kind.asks:
            if flight.expected is None:
                return
            begin = max(begin, flight.expected + self._network.one_way_ns(dst, src))
        self._simulation.at(begin, (_MESSAGE, src, dst, number), lambda: self._carry(flight, src, dst))

    def exchange(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], from_peer: Mapping[int, int], terms: Terms
    ) -> ExchangeFlight:
        """Join an exchange of datagrams."""
        return self._exchanges.begin(rank, number, sends, from_peer, terms)

    def there(self, flight: ExchangeFlight, peer: int, cut: Blocks) -> list[bool]:
        """Whether each block of a peer had arrived when the exchange ended."""
        return cut.arrived(flight.arrived[peer].tolist()) if peer in flight.arrived else [False] * cut.count

    def done(self, flight: Flight | ExchangeFlight, rank: int) -> bool:
        """Whether `wait` would return at once."""
        end = flight.end_for(rank)
        return end is not None and end <= self._simulation.now

    def ended(self, flight: Flight | ExchangeFlight, rank: int) -> int | None:
        """When it ends for a rank, or None if this is not known yet."""
        return flight.end_for(rank)

    def wait(self, flight: Flight | ExchangeFlight, rank: int, until_ns: int | None = None) -> None:
        """Wait until the operation has ended for this worker, at most until `until_ns`. Raises: SwitchError."""
        refuse_inside_autograd()
        end = flight.end_for(rank)
        if end is None:
            waiting = Waiting(rank, getcurrent(), until_ns)
            flight.waiting.append(waiting)
            if until_ns is not None:
                self._simulation.at(until_ns, (_TIMEOUT, rank), lambda: self._time_out(flight, waiting))
            self._simulation.park()
            return
        end = end if until_ns is None else min(end, until_ns)
        if end >= NEVER:  # the simulation decides whether this happens
            self._simulation.wake(end, getcurrent(), rank)
            self._simulation.park()
        elif end > self._simulation.now:
            self._simulation.sleep_until(end, rank)

    def _time_out(self, flight: Flight | ExchangeFlight, waiting: Waiting) -> None:
        """Wake a worker at the end of its wait, if it still waits."""
        if waiting in flight.waiting:
            flight.waiting.remove(waiting)
            self._simulation.wake(self._simulation.now, waiting.worker, waiting.rank)

    def _wake(self, flight: Flight) -> None:
        """Wake the waiting workers at the end of the operation, which is now known."""
        for waiting in flight.waiting:
            end = flight.end_for(waiting.rank)
            assert end is not None, "ends are known by now"
            self._wake_at(end if waiting.until_ns is None else min(end, waiting.until_ns), waiting)
        flight.waiting.clear()
        for first in flight.firsts:
            assert flight.ends is not None, "only messages are waited for in this way"
            self._simulation.at(flight.ends[0], (_FIRST,), first)

    def _wake_at(self, time_ns: int, waiting: Waiting) -> None:
        self._simulation.wake(time_ns, waiting.worker, waiting.rank)

    def _resume(self, waiting: Waiting) -> None:
        """Wake a parked worker, unless something else has done so."""
        if waiting in self._parked:
            del self._parked[waiting]
            self._simulation.wake(self._simulation.now, waiting.worker, waiting.rank)

    def wait_first(self, flights: Sequence[Flight], rank: int, until_ns: int | None = None) -> None:
        """Wait until the first of several messages has arrived, at most until `until_ns`. Raises: SwitchError."""
        refuse_inside_autograd()
        waiting = Waiting(rank, getcurrent())
        self._parked[waiting] = None
        first = partial(self._resume, waiting)
        unknown = [flight for flight in flights if flight.ends is None]
        for flight in unknown:
            flight.firsts.append(first)
        times = [flight.ends[0] for flight in flights if flight.ends is not None]
        for time_ns in times if until_ns is None else [*times, until_ns]:
            self._simulation.at(time_ns, (_FIRST,), first)
        self._simulation.park()
        for flight in unknown:
            flight.firsts.remove(first)

    def background(self, rank: int, body: Callable[[], None]) -> Flight:
        """Run `body` beside a worker, and return what ends with it."""
        flight = Flight(0, 0)

        def run() -> None:
            body()
            flight.ends = [self._simulation.now]
            self._wake(flight)

        self._simulation.spawn(self.members[rank], run, beside=True)
        return flight

    # ---------------------------------------------------------------- the network's side

    def _admit(self) -> None:
        """Begin operations in their order, as many at a time as the collective allows."""
        while self._queue and (self._freed is None or self._freed):
            sequence, flight = self._queue.popleft()
            ready = np.array(flight.joined, np.int64)
            if self._freed is not None:
                ready = np.maximum(ready, self._freed.popleft())
            self._begin(sequence, flight, ready)

    def _begin(self, sequence: int, flight: Flight, ready: Ints) -> None:
        if len(self.members) == 1 or flight.nbytes == 0:
            self._end(flight, ready)
            return
        plan = self._plans.get((flight.gathers, flight.nbytes))
        if plan is None:
            whole = flight.gathers or flight.nbytes <= self._one_shot_bytes
            kind = self._gather if whole and self._gather is not None else self._kind
            plan = self._plans[flight.gathers, flight.nbytes] = self._plan(kind, flight.nbytes)
        rounds = plan.rounds(ready, sequence % self._channels)
        self._advance(rounds, None, (_COLLECTIVE, sequence), lambda ends: self._end(flight, ends))

    def _plan(self, kind: type[Plan], nbytes: int) -> Plan:
        return kind(self._network, nbytes)

    def _advance(self, rounds: Rounds, arrived: Any, key: tuple[int, ...], then: Callable[[Ints], None]) -> None:
        """Advance a collective by one step: schedule its next round, or several generators side by side."""
        try:
            step = rounds.send(arrived)
        except StopIteration as stop:
            then(stop.value)
            return
        if isinstance(step, Round):
            self._simulation.at(int(step.ready.min()), key, lambda: self._send(rounds, step, key, then))
            return
        results: list[Ints | None] = [None] * len(step)

        def collect(part: int, ends: Ints) -> None:
            results[part] = ends
            if all(result is not None for result in results):
                self._advance(rounds, results, key, then)

        for part, chain in enumerate(step):
            self._advance(chain, None, (*key, part), lambda ends, part=part: collect(part, ends))  # type: ignore[misc]

    def _send(self, rounds: Rounds, step: Round, key: tuple[int, ...], then: Callable[[Ints], None]) -> None:
        """Send a round. It enters the down queues when its first message reaches them, and not before."""
        route, flying = step.route, step.route.depart(step.ready, step.connections, step.complete)
        if route.shares_down:
            self._simulation.at(int(flying.begin.min()), key, lambda: self._land(rounds, step, flying, key, then))
        else:
            self._land(rounds, step, flying, key, then)

    def _land(
        self, rounds: Rounds, step: Round, flying: Flying, key: tuple[int, ...], then: Callable[[Ints], None]
    ) -> None:
        reached = step.route.reached_ns(flying) if step.spans else None
        arrived = step.route.land(flying, step.connections)
        self._advance(rounds, arrived if reached is None else (reached, arrived), key, then)

    def _end(self, flight: Flight, ends: Ints) -> None:
        """Set the end of the operation for each rank: wake waiting workers, and begin waiting operations."""
        flight.ends = ends.tolist()
        self._wake(flight)
        if self._freed is not None:
            self._freed.append(ends)
            self._admit()

    def _carry(self, flight: Flight, src: int, dst: int) -> None:
        src, dst = self.members[src], self.members[dst]
        kind, count, index = self._kind.message_slot(self._network, src, dst)
        route = self._routes.get((src, dst, flight.nbytes))
        if route is None:
            site = self._network.site_of
            sizes = np.array([flight.nbytes])
            route = Route(self._network, np.array([src]), site[dst : dst + 1], sizes, index=np.array([index]))
            self._routes[src, dst, flight.nbytes] = route
        sockets = self._network.connections(self._pairs or kind, 0, count, paced=self._kind.paced)
        ready = np.array([self._simulation.now], np.int64)
        pace = None if self._paces is None else self._paces(src)[dst][1]
        last = ready if pace is None else ready + round(flight.nbytes / pace * 1e9)
        flying = route.depart(ready, sockets, last)
        if flight.leaves is not None and flight.leaves.ends is None:
            held_ns = 0 if pace is None else round(max(UNSENT_S, UNSENT_BYTES / pace) * 1e9)
            left_ns = route.left_ns(flying)
            if self._network.tcp.ramp:  # what is sent again has left the kernel's queue
                left_ns = min(left_ns, max(sockets.sent_ns(index), int(last[0])))
            flight.leaves.ends = [max(self._simulation.now, left_ns - held_ns)]
            self._wake(flight.leaves)
        flight.ends = [int(route.land(flying, sockets)[0])]
        self._wake(flight)
