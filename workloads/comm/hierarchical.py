"""The `hierarchical` collective: inside each site, then across sites.

An all-reduce goes through the first worker of each site, its leader::

    each worker sends its vector to its leader, which adds them     (inside the site)
    the leaders compute the mean as `direct` does                   (across sites)
    each leader sends the mean to the workers of its site           (inside the site)

So the link of a site carries one vector for any number of workers. Everything else goes directly, as in `direct`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch

from wanbench.workloads.comm.base import Vector
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.mesh import Mesh
from wanbench.workloads.comm.work import DirectWork


def members_of(site_of: Sequence[int], rank: int) -> tuple[list[int], list[int]]:
    """Return the ranks of this rank's site, its leader first, and the leaders of all sites."""
    leaders = [site_of.index(site) for site in dict.fromkeys(site_of)]
    return [peer for peer, site in enumerate(site_of) if site == site_of[rank]], leaders


@dataclass
class _Reduction:
    """An all-reduce on a leader, with the vectors of its site that are `missing`, and means that are `unsent`."""

    work: DirectWork
    vector: torch.Tensor
    parts: Sequence[torch.Tensor]
    missing: int = field(init=False)
    unsent: int = 0
    averaged: bool = False

    def __post_init__(self) -> None:
        self.missing = len(self.parts)


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
        self._order = threading.RLock()  # operations go on in the order in which they were issued
        self._collecting: deque[_Reduction] = deque()
        self._averaging: deque[_Reduction] = deque()
        super().__init__(mesh, timeout_s=timeout_s)

    def all_reduce(self, vector: Vector) -> DirectWork:
        """Compute the mean over all ranks, in place."""
        tensor = cast(torch.Tensor, vector)
        work = DirectWork("all_reduce", self._timeout_s)
        if self._inside.rank:
            self._inside.send(tensor, 0)
            self._inside.recv(tensor, 0).then(partial(self._delivered, work))
            return work
        reduction = _Reduction(work, tensor, [torch.empty_like(tensor) for _ in range(1, self._inside.world_size)])
        with self._order:
            self._collecting.append(reduction)
        for member, part in enumerate(reduction.parts, start=1):
            self._inside.recv(part, member).then(partial(self._collected, reduction))
        self._go_on()
        return work

    def give_up(self, reason: str) -> None:
        """Fail all pending operations, here and at the peers. The first reason is kept."""
        super().give_up(reason)
        for comm in (self._inside, self._across):
            if comm is not None:
                comm.give_up(reason)
        with self._order:  # also those that wait only for an earlier one
            waiting = [*self._collecting, *self._averaging]
            self._collecting.clear()
            self._averaging.clear()
        for reduction in waiting:
            if not reduction.work.done():
                reduction.work.complete(reason)

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._inside.close()
        if self._across is not None:
            self._across.close()

    def _delivered(self, work: DirectWork, error: str | None) -> None:
        work.complete(error)
        if error is not None:
            self.give_up(error)

    def _collected(self, reduction: _Reduction, error: str | None) -> None:
        if error is not None:
            self._end(reduction, error)
            return
        with self._order:
            reduction.missing -= 1
        self._go_on()

    def _go_on(self) -> None:
        """Exchange the sums of this site that are complete."""
        with self._order:
            while self._collecting and not self._collecting[0].missing:
                reduction = self._collecting.popleft()
                for part in reduction.parts:
                    reduction.vector += part
                sites = 1 if self._across is None else self._across.world_size
                reduction.vector *= sites / self.world_size  # the mean over sites is then the mean over workers
                self._averaging.append(reduction)
                if self._across is None:
                    self._averaged(reduction, None)
                else:
                    self._across.all_reduce(reduction.vector).then(partial(self._averaged, reduction))

    def _averaged(self, reduction: _Reduction, error: str | None) -> None:
        if error is not None:
            self._end(reduction, error)
            return
        with self._order:
            reduction.averaged = True
            while self._averaging and self._averaging[0].averaged:
                finished = self._averaging.popleft()
                sent = [self._inside.send(finished.vector, member) for member in range(1, self._inside.world_size)]
                finished.unsent = len(sent)
                for each in sent:
                    each.then(partial(self._mean_left, finished))
                if not sent:
                    finished.work.complete()

    def _mean_left(self, reduction: _Reduction, error: str | None) -> None:
        """The mean has left for one of the workers of this site."""
        if error is not None:
            self._end(reduction, error)
            return
        with self._order:
            reduction.unsent -= 1
            if reduction.unsent:
                return
        reduction.work.complete()

    def _end(self, reduction: _Reduction, error: str) -> None:
        if not reduction.work.done():
            reduction.work.complete(error)
        self.give_up(error)
