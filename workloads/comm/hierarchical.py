"""The `hierarchical` collective: inside each site, then across sites.

An all-reduce goes through the first worker of each site, its leader::

    each worker sends its vector to its leader, which adds them     (inside the site)
    the leaders add the sums of all sites as `direct` does          (across sites)
    each leader divides by N, and sends the mean to the workers of its site           (inside the site)

So the link of a site carries one vector for any number of workers. Everything else goes directly, as in `direct`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch

from wanbench.workloads.comm.base import Vector
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.mesh import Mesh
from wanbench.workloads.comm.tensors import HALF, MEAN, Reduction
from wanbench.workloads.comm.work import DirectWork, when_all


def form(
    connect: Callable[[str, Sequence[int]], Mesh],
    site_of: Sequence[int | str],
    rank: int,
    *,
    timeout_s: float,
    one_shot_bytes: int = 0,
) -> HierarchicalComm:
    """Connect to all peers, then to the workers of this site, then the leaders of all sites with each other.

    Args:
        connect: connects members, of which this rank is one, and which agree on the name of their role.
        site_of: by rank, its site.
        rank: this rank.
        timeout_s: as in `DirectComm`. one_shot_bytes: likewise, of the leaders.
    """
    everyone = connect("all", range(len(site_of)))
    site, leaders = members_of(site_of, rank)
    inside = DirectComm(connect("site", site), timeout_s=timeout_s)
    across = None
    if rank in leaders and len(leaders) > 1:
        across = DirectComm(connect("leaders", leaders), timeout_s=timeout_s, one_shot_bytes=one_shot_bytes)
    return HierarchicalComm(everyone, inside, across, timeout_s=timeout_s)


def members_of(site_of: Sequence[int | str], rank: int) -> tuple[list[int], list[int]]:
    """Return the ranks of this rank's site, its leader first, and the leaders of all sites."""
    leaders = [site_of.index(site) for site in dict.fromkeys(site_of)]
    return [peer for peer, site in enumerate(site_of) if site == site_of[rank]], leaders


@dataclass
class _Pending:
    """An all-reduce on a leader: whether it has the vectors of its site, and whether it has the mean of all.

    Attributes:
        inside: by worker of this site, the message to or from it that comes last.
        parts: their vectors.
        across: the all-reduce of the leaders, once it has begun.
    """

    work: DirectWork
    vector: torch.Tensor
    reduction: Reduction
    parts: Mapping[int, torch.Tensor]
    inside: Mapping[int, DirectWork] = field(default_factory=dict)
    across: DirectWork | None = None
    collected: bool = False
    averaged: bool = False


class HierarchicalComm(DirectComm):
    """Workers of several sites; the module's docstring describes the all-reduce.

    Args:
        mesh: connections to all peers.
        inside: the workers of this site, its leader first.
        across: the leaders of all sites; None on all other workers, and if there is one site.
        timeout_s: as in `DirectComm`.
    """

    def __init__(self, mesh: Mesh, inside: DirectComm, across: DirectComm | None, *, timeout_s: float) -> None:
        self._inside, self._across = inside, across
        self._parts = [inside] if across is None else [inside, across]
        self._order = threading.RLock()  # operations go on in the order in which they were issued
        self._collecting: deque[_Pending] = deque()
        self._averaging: deque[_Pending] = deque()
        super().__init__(mesh, timeout_s=timeout_s)

    def all_reduce(self, vector: Vector, reduction: Reduction = MEAN) -> DirectWork:
        """Reduce over all ranks, in place."""
        tensor = cast(torch.Tensor, vector)
        if reduction.wide and tensor.dtype in HALF:
            return self._in_single_precision(tensor, reduction)
        about = f"all_reduce by {reduction.name}"
        if self._inside.rank:
            work = self._work(lambda patience_s: self._late_on_member(work, patience_s))
            self._inside.send(tensor, 0, about=about)
            self._inside.recv(tensor, 0, about=about).then(partial(self._end, work))
            return work
        work = self._work(lambda patience_s: self._late_on_leader(pending, patience_s))
        parts = {member: torch.empty_like(tensor) for member in range(1, self._inside.world_size)}
        pending = _Pending(work, tensor, reduction, parts)
        with self._order:
            self._collecting.append(pending)
            pending.inside = {member: self._inside.recv(part, member, about=about) for member, part in parts.items()}
        when_all(pending.inside.values(), partial(self._next, self._collected, pending))
        return work

    def _work(self, late: Callable[[float], Sequence[int]]) -> DirectWork:
        return DirectWork("all_reduce", self.timeout_s, late, self.give_up)

    def _late_on_member(self, work: DirectWork, patience_s: float) -> Sequence[int]:
        """The leader, unless it says in time which rank it waits for itself."""
        work.ends_within(patience_s)
        return [self._inside.names[0]]

    def _late_on_leader(self, pending: _Pending, patience_s: float) -> Sequence[int]:
        """The workers of this site that are late, otherwise the leaders, unless they say which rank they wait for."""
        with self._order:
            late = [self._inside.names[member] for member, message in pending.inside.items() if not message.done()]
            across = pending.across
        if late or across is None:
            return late
        pending.work.ends_within(patience_s / 2)  # half: the workers of this site wait for this leader
        return across.late(patience_s / 4)

    def give_up(self, reason: str) -> None:
        """Fail all pending operations, here and at the peers. The first reason is kept."""
        super().give_up(reason)
        for comm in self._parts:
            comm.give_up(reason)
        with self._order:  # also those that wait only for an earlier one
            waiting = [*self._collecting, *self._averaging]
            self._collecting.clear()
            self._averaging.clear()
        for pending in waiting:
            pending.work.complete(reason)

    def leave(self) -> None:
        """Say goodbye to all ranks, as `DirectComm` does."""
        for comm in self._parts:
            comm.leave()
        super().leave()

    def close(self) -> None:
        """Close all connections."""
        super().close()
        for comm in self._parts:
            comm.close()

    @torch.inference_mode()  # so that tensors made in this mode can be changed, too
    def _next(self, step: Callable[[_Pending], None], pending: _Pending, error: str | None) -> None:
        """Go on with an all-reduce, or end it because a part of it has failed."""
        if error is None:
            step(pending)
        else:
            self._end(pending.work, error)

    def _collected(self, pending: _Pending) -> None:
        """The vectors of this site are here: exchange the sums that are complete."""
        with self._order:
            pending.collected = True
            while self._collecting and self._collecting[0].collected:
                first = self._collecting.popleft()
                for part in first.parts.values():
                    first.reduction.accumulate(first.vector, part)
                self._averaging.append(first)
                if self._across is None:
                    self._averaged(first)
                else:
                    across = replace(first.reduction, mean=False, wide=True)  # a sum that is still called a mean
                    first.across = self._across.all_reduce(first.vector, across)
                    first.across.then(partial(self._next, self._averaged, first))

    def _averaged(self, pending: _Pending) -> None:
        """The sum of all sites is here: send the means that are complete to the workers of this site."""
        with self._order:
            pending.averaged = True
            while self._averaging and self._averaging[0].averaged:
                first = self._averaging.popleft()
                if first.reduction.mean:
                    first.vector /= self.world_size
                about = f"all_reduce by {first.reduction.name}"
                first.inside = {member: self._inside.send(first.vector, member, about=about) for member in first.parts}
                when_all(first.inside.values(), partial(self._end, first.work))

    def _end(self, work: DirectWork, error: str | None) -> None:
        work.complete(error)
        if error is not None:
            self.give_up(error)
