"""HALoS: a server in each region, and a global server that merges what the regions have learned.

A region is a site, with its server beside its lowest rank; the global server runs beside rank 0. Inside a region it is
asynchronous local SGD (`async_local_sgd`), with the workers' model x::

    worker k:         H_k local steps from x ;  send their change g, wait for x
    region's server:  x <- DelayedNesterov(x, g; local_lr N, local_momentum, N)
        K updates after the last merge:      y <- the x after that merge ;  send the drift d = y - x
        when the global model x_g arrives:   x <- (1 - alpha) x + alpha x_g       workers do not wait for it
    global server:    x_g <- DelayedNesterov(x_g, d; global_lr N_g, global_momentum, N_g) ;  send x_g to that region

Vectors have shape (numel,). One drift of a region is under way at a time; updates while it is are in x, and in no later
drift, as in the authors' code. That code multiplies both learning rates by N, so they are those of one update, and this
one does so too. With one region there is no global server.

At `finish` each region sends a last drift, of its updates since the last merge or, if a drift is under way, since that
was sent. All workers continue from the x_g that then results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wanbench.workloads.algorithms.async_local_sgd import DelayedNesterov, Served, UpdateServer
from wanbench.workloads.algorithms.base import Promises, at_least, between
from wanbench.workloads.algorithms.server import Desk, Letter
from wanbench.workloads.comm.base import Vector

GLOBAL = 0


class RegionServer(UpdateServer):
    """The server of a region that is not that of rank 0, or the only one."""

    def __init__(self, algorithm: HALoS, workers: Collection[int]) -> None:
        super().__init__(algorithm, workers)
        self._merges = algorithm.merges if len(algorithm.servers) > 1 else 0  # with one region, nothing is merged
        self.peers = (GLOBAL,) if self._merges else ()
        self._mixing = algorithm.mixing
        self._begin = self.outer.theta.clone()  # y: the next drift begins there
        self._updates = 0
        self._under_way = False

    def updated(self, desk: Desk) -> None:
        """Send the drift after K updates."""
        self._updates += 1
        if self._updates >= self._merges > 0 and not self._under_way:
            self._under_way = True
            self.send_drift(desk, self._drift())

    def heard(self, desk: Desk, letter: Letter) -> None:
        """Merge the global model."""
        assert letter.vector is not None, "the global server sends its model"
        self.merge(letter.vector, last=letter.last)

    def ended(self, desk: Desk) -> None:
        """Send what has not been sent, and take the global model."""
        if not self._merges:
            return
        drift = self._drift()
        if self._under_way:
            self._hear(desk)
        self.send_drift(desk, drift, last=True)
        self._hear(desk)

    def send_drift(self, desk: Desk, drift: Vector | None, *, last: bool = False) -> None:
        """Send a drift to the global server."""
        desk.post(GLOBAL, drift, last=last)

    def merge(self, theta: Vector, *, last: bool = False) -> None:
        """Merge the global model; the last one replaces this one."""
        share = 1.0 if last else self._mixing
        with self.lock:
            self.outer.theta.mul_(1.0 - share).add_(theta, alpha=share)
        self._under_way = False
        self._drift()  # what was learned meanwhile is in no later one

    def _hear(self, desk: Desk) -> None:
        letter = desk.take()
        assert letter is not None, "without a time limit there is a letter"
        self.heard(desk, letter)

    def _drift(self) -> Vector | None:
        """The drift since the last one, if there were updates; the next one begins here."""
        drift = self._begin.clone().add_(self.outer.theta, alpha=-1.0) if self._updates else None
        self._begin.copy_(self.outer.theta)
        self._updates = 0
        return drift


class GlobalServer(RegionServer):
    """The server of the region of rank 0, which also merges the drifts of all regions."""

    def __init__(self, algorithm: HALoS, workers: Collection[int]) -> None:
        super().__init__(algorithm, workers)
        self.peers = [rank for rank in algorithm.servers if rank != GLOBAL]
        self._global = algorithm._global

    def heard(self, desk: Desk, letter: Letter) -> None:
        """Merge a drift of another region, and answer it."""
        self._step(letter.vector)
        if not letter.last:
            desk.post(letter.source, self._global.theta)

    def send_drift(self, desk: Desk, drift: Vector | None, *, last: bool = False) -> None:
        """Merge the drift of this region, without a message."""
        self._step(drift)
        if not last:
            self.merge(self._global.theta)

    def ended(self, desk: Desk) -> None:
        """Merge the last drifts of all regions, and send them the global model."""
        self.send_drift(desk, self._drift(), last=True)
        while desk.sources:
            letter = desk.take()
            assert letter is not None, "without a time limit there is a letter"
            self.heard(desk, letter)
        for region in self.peers:
            desk.post(region, self._global.theta, last=True)
        self.merge(self._global.theta, last=True)

    def _step(self, drift: Vector | None) -> None:
        if drift is not None:
            with self.lock:
                self._global.step(drift)


@dataclass
class HALoS(Served):
    """A server in each region, and a global one that merges regions.

    The module has the equations. Only drifts of regions and global models travel between sites. A region is a site of
    the network; where sites are unknown, as in your own training loop, all workers are one region.

    Attributes:
        period: H, local steps of the fastest worker of a region from one message to the next; 1 or more.
        merges: K, updates in a region from a merge to its next drift; 1 or more.
        local_lr, local_momentum, local_every: learning rate of one update, momentum, and N of a region's server.
        global_lr, global_momentum, global_every: the same of the global server.
        mixing: alpha, the share of the global model in a merge.
        dynamic: whether slower workers make fewer local steps.
    """

    kind = "halos"
    source = "Kim et al., HALoS: Hierarchical Asynchronous Local SGD over Slow Networks, ICML 2025 (arXiv 2506.04531)"
    symbols = {"period": "H", "merges": "K", "local_every": "N", "global_every": "N_g", "mixing": "alpha"}  # noqa: RUF012
    spelt = ("merges", "local_lr", "global_lr")
    tried: ClassVar = {"period": (8,)}  # few: the law does not describe it, so each has to be simulated
    examples = (
        {"period": 4, "merges": 2},
        {"period": 2, "merges": 2, "local_every": 1, "local_lr": 0.7, "global_lr": 0.7, "mixing": 1.0},
    )
    state: ClassVar[tuple[str, ...]] = (*Served.state, "_global")
    without_a_peer = "steps continue: they need the server of their own site only. `finish` waits for all sites"

    period: int = field(metadata=at_least(1))
    merges: int = field(default=32, metadata=at_least(1))
    local_lr: float = field(default=0.2, metadata=between(0, 100, open_below=True))
    local_momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    local_every: int = field(default=16, metadata=at_least(1))
    global_lr: float = field(default=0.15, metadata=between(0, 100, open_below=True))
    global_momentum: float = field(default=0.5, metadata=between(0, 1, open_above=True))
    global_every: int = field(default=2, metadata=at_least(1))
    mixing: float = field(default=0.25, metadata=between(0, 1))
    dynamic: bool = True

    @property
    def promises(self) -> Promises:
        """All workers end with the global model; no step needs a message from another site."""
        return Promises(agrees=True, repeats=False, goes_on=True)

    @property
    def evaluated(self) -> Vector:
        """On rank 0 the global model, or that of the only region; elsewhere the last one received."""
        if self.replica.comm.rank != GLOBAL or len(self.servers) == 1:
            return super().evaluated
        with self._lock:
            return self._global.theta.clone()

    @property
    def _sites(self) -> Sequence[int]:
        """By rank, the number of its region."""
        return self.replica.site_of or [0] * self.replica.comm.world_size

    @property
    def servers(self) -> list[int]:
        """The ranks of all regions' servers; rank 0 is the first."""
        return [self._sites.index(site) for site in dict.fromkeys(self._sites)]

    @property
    def _server_rank(self) -> int:
        return self._sites.index(self._sites[self.replica.comm.rank])

    def _make_outer(self) -> DelayedNesterov:
        w = self.replica.w
        n, global_n = self.local_every, self.global_every
        self._global = DelayedNesterov(w, lr=self.global_lr * global_n, momentum=self.global_momentum, every=global_n)
        return DelayedNesterov(w, lr=self.local_lr * n, momentum=self.local_momentum, every=n)

    def _make_server(self) -> UpdateServer:
        sites, rank = self._sites, self.replica.comm.rank
        workers = [peer for peer, site in enumerate(sites) if site == sites[rank]]
        is_global = rank == GLOBAL and len(self.servers) > 1
        return GlobalServer(self, workers) if is_global else RegionServer(self, workers)
