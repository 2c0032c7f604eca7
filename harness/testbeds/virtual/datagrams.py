"""Exchanges of datagrams on the simulated clock: when datagrams arrive, which are lost, and when an exchange ends.

A worker's datagrams to one peer are one fluid message, like all messages. They arrive evenly spaced from its first
byte to its last. They are lost one by one, or in bursts, by the stream of their path. An exchange ends by the rule of
`workloads.comm.base.Exchange`, applied to these arrivals.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from greenlet import greenlet

from wanbench.harness.testbeds.virtual import Bools, Ints
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import Flying, Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import NEVER
from wanbench.workloads.comm.base import Terms

_SENT, _LANDED, _ENDED = 2, 3, 4  # order of events at equal times; 0 and 1 are the events of the fabric


@dataclass(frozen=True, eq=False)
class Waiting:
    """A parked worker, and the latest time at which it resumes; None is the end of the operation."""

    rank: int
    worker: greenlet
    until_ns: int | None = None


class ExchangeFlight:
    """One rank's part in an exchange.

    Args:
        rank, number: the rank, and the number of its exchange.
        from_peer: number of datagrams of each peer that sends any.
        terms: rule for the end of the exchange.
    """

    def __init__(self, rank: int, number: int, from_peer: Mapping[int, int], terms: Terms) -> None:
        self.rank, self.number, self.from_peer, self.terms = rank, number, from_peer, terms
        self.left_ns: int | None = None
        self.ended_ns: int | None = None
        self.waiting: list[Waiting] = []
        self.arrived: dict[int, Bools] = {}

    def end_for(self, rank: int) -> int | None:
        """When it ended, or None if it has not."""
        return self.ended_ns


class Exchanges:
    """The exchanges of all ranks of a simulation."""

    def __init__(self, simulation: Simulation, network: VirtualNetwork) -> None:
        self._simulation, self._network = simulation, network
        ranks = len(network.site_of)
        self._routes: dict[tuple[int, tuple[tuple[int, int, int], ...]], Route] = {}
        self._pending: list[dict[int, ExchangeFlight]] = [{} for _ in range(ranks)]
        # Of each rank, by exchange and peer: when the datagrams of the peer arrive; `NEVER` for those that are lost.
        self._batches: list[dict[int, dict[int, Ints]]] = [defaultdict(dict) for _ in range(ranks)]
        self._ended = [-1] * ranks

    def begin(
        self, rank: int, number: int, sends: Mapping[int, tuple[int, int]], from_peer: Mapping[int, int], terms: Terms
    ) -> ExchangeFlight:
        """Let a rank join its exchange `number`. `sends` holds (datagrams, bytes) for each peer that gets any."""
        flight = self._pending[rank][number] = ExchangeFlight(rank, number, from_peer, terms)
        key = tuple((dst, *sends[dst]) for dst in sorted(sends, key=lambda dst: (dst - rank) % len(self._pending)))
        self._simulation.at(self._simulation.now, (_SENT, rank, number), lambda: self._send(flight, key))
        return flight

    def _send(self, flight: ExchangeFlight, key: tuple[tuple[int, int, int], ...]) -> None:
        now, rank = self._simulation.now, flight.rank
        flight.left_ns = now
        if key:
            route = self._route(rank, key)
            flying = route.depart(np.full(len(key), now, np.int64), None)
            flight.left_ns = max(now, route.left_ns(flying))
            begin = int(flying.begin.min()) if route.shares_down else now
            self._simulation.at(begin, (_LANDED, rank, flight.number), lambda: self._land(flight, key, route, flying))
        self._review(flight)

    def _route(self, rank: int, key: tuple[tuple[int, int, int], ...]) -> Route:
        route = self._routes.get((rank, key))
        if route is None:
            dst, datagrams, nbytes = (np.array(column, np.int64) for column in zip(*key, strict=True))
            src, site = np.full(len(key), rank, np.int64), self._network.site_of[dst]
            route = self._routes[rank, key] = Route(self._network, src, site, nbytes, datagrams=datagrams)
        return route

    def _land(
        self, flight: ExchangeFlight, key: tuple[tuple[int, int, int], ...], route: Route, flying: Flying
    ) -> None:
        begins, ends = route.land_span(flying)
        origin = int(self._network.site_of[flight.rank])
        for (dst, datagrams, _), begin, end in zip(key, begins.tolist(), ends.tolist(), strict=True):
            steps = np.arange(1, datagrams + 1)
            arrival = begin + (end - begin) * steps // datagrams
            link = origin * self._network.sites + int(self._network.site_of[dst])
            lost = self._network.paths.lost(link, datagrams)
            if self._network.outages:
                lost |= self._network.outages.lost(link, arrival - self._network.delay[link])
            self._batches[dst][flight.number][flight.rank] = np.where(lost, NEVER, arrival)
            for number, waiting in list(self._pending[dst].items()):
                if number <= flight.number:
                    self._review(waiting)
            self._forget(dst)

    def _review(self, flight: ExchangeFlight) -> None:
        """Compute the end of the exchange from the datagrams known now. Later ones can change it."""
        if flight.left_ns is None or flight.ended_ns is not None:
            return
        end = self._end_ns(flight, flight.left_ns)
        if end > self._simulation.now:
            self._simulation.at(end, (_ENDED, flight.rank, flight.number), lambda: self._review(flight))
            return
        flight.ended_ns = self._simulation.now
        for peer, batch in self._batches[flight.rank][flight.number].items():
            flight.arrived[peer] = batch <= flight.ended_ns
        del self._pending[flight.rank][flight.number]
        self._ended[flight.rank] = max(self._ended[flight.rank], flight.number)
        self._forget(flight.rank)
        for waiting in flight.waiting:
            self._simulation.wake(flight.ended_ns, waiting.worker, waiting.rank)
        flight.waiting.clear()

    def _end_ns(self, flight: ExchangeFlight, left_ns: int) -> int:
        by_exchange = self._batches[flight.rank]
        batches = [by_exchange[flight.number][peer] for peer in flight.from_peer if peer in by_exchange[flight.number]]
        arrivals = np.sort(np.concatenate([batch[batch < NEVER] for batch in batches] or [np.zeros(0, np.int64)]))
        complete = len(arrivals) == sum(flight.from_peer.values())
        complete_ns = max(left_ns, int(arrivals[-1]) if len(arrivals) else 0) if complete else None
        latest = self._all_arrived_ns(flight)
        if latest is not None:
            chain = np.append(latest, arrivals[arrivals > latest])
            silent_ns = np.maximum(left_ns, chain[:-1]) + flight.terms.silence_ns
            late = np.flatnonzero(chain[1:] > np.minimum(left_ns + flight.terms.deadline_ns, silent_ns))
            latest = int(chain[late[0] if len(late) else -1])
        end = flight.terms.end_ns(left_ns, latest)
        return end if complete_ns is None else min(end, complete_ns)

    def _all_arrived_ns(self, flight: ExchangeFlight) -> int | None:
        """When every peer's first datagram, of this exchange or a later one, had arrived; None if one has not."""
        first_of = dict.fromkeys(flight.from_peer, NEVER)
        for number, batches in self._batches[flight.rank].items():
            if number >= flight.number:
                for peer, batch in batches.items():
                    first_of[peer] = min(first_of.get(peer, NEVER), int(batch.min()))
        latest = max((first_of[peer] for peer in flight.from_peer), default=0)
        return None if latest == NEVER else latest

    def _forget(self, rank: int) -> None:
        """Drop the datagrams of exchanges that have ended for this rank."""
        batches, pending = self._batches[rank], self._pending[rank]
        # No pending exchange needs what is older than all of them.
        for number in [n for n in batches if n <= self._ended[rank] and all(later > n for later in pending)]:
            del batches[number]
