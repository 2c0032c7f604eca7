"""Asynchronous local SGD: a server takes an outer step whenever a worker has finished its local steps.

The server runs beside the worker of rank 0, and is never busy while nothing arrives. It merges updates in the order of
their arrival::

    worker k:  theta_k <- H_k steps of the local optimiser from theta ;  send g = theta - theta_k, wait for theta
    server:    theta <- DelayedNesterov(theta, g; outer_lr, momentum, N, c) ;  send theta to worker k

**Delayed Nesterov** (`delayed_nesterov`): the momentum changes only every N arrivals, because N updates at stale
parameters are no N steps in a row.

**Dynamic local updates**: worker k makes steps in proportion to its speed, so all are about equally late::

    H_k = max(1, round(H * (seconds per step of the fastest worker) / (seconds per step of worker k)))

Speeds are those measured in the last round, without the time of messages. The first round has H steps. The authors cut
off the fraction; rounded, small differences between equally fast workers change nothing.

**Groups**: with `max_wait`, the server merges what arrives within that time after the first update of a group, and then
lets all its workers go on at the same theta. It waits only while another update is due within `max_wait`. It knows that
from the worker's last round, and in the first round from its first step. What arrives at the same time is one group,
also without `max_wait`, and is merged in the order of ranks.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field

from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import Setting, at_least, between
from wanbench.workloads.algorithms.delayed_nesterov import DelayedNesterov
from wanbench.workloads.algorithms.served import Served
from wanbench.workloads.algorithms.update_server import Terms, UpdateServer

SERVER = 0


@dataclass
class AsyncLocalSGD(Served):
    """A server merges local steps whenever a worker has made them.

    The module has the equations. Each worker makes all steps of a run at its own pace, then waits for the slowest.
    With workers of equal speed, N = their number and c = 0 it is DiLoCo. `finish` ends a round early, and all
    workers continue from the server's theta.

    Attributes:
        period: H, local steps of the fastest worker from one message to the next; 1 or more.
        outer_lr: learning rate of the outer step.
        momentum: beta, momentum of the outer step.
        every: N, arrivals from one change of the momentum to the next; 0 is the number of workers.
        spread: c, the share of the momentum that other arrivals apply; at most 1 / N.
        max_wait: how long the server waits for further updates that are due, such as "500ms".
        dynamic: whether slower workers make fewer local steps.
    """

    kind = "async-local-sgd"
    source = "Liu et al., Asynchronous Local-SGD Training for Language Modeling, 2024 (arXiv 2401.09135)"
    symbols = {"period": "H", "outer_lr": "outer learning rate", "momentum": "beta", "every": "N", "spread": "c"}  # noqa: RUF012
    examples = ({"period": 4}, {"period": 1, "max_wait": "5ms", "dynamic": False, "spread": 0.2})
    without_a_peer = "a worker that cannot reach rank 0 waits; the others continue"

    period: int = field(metadata=at_least(1))
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))
    every: int = field(default=0, metadata=at_least(0))
    spread: float = field(default=0.0, metadata=between(0, 1))
    max_wait: str = "0s"
    dynamic: bool = True

    def _check(self, name: str, value: object, item: Field[object]) -> None:
        super()._check(name, value, item)
        if name == "max_wait":
            self._parsed(name, value, Delay)

    def check(self, setting: Setting) -> None:
        super().check(setting)
        every = self.every or setting.workers
        if self.spread * every > 1:
            self.refuse("spread", self.spread, f"at most 1 / N = {1 / every:g}")

    @property
    def _server_rank(self) -> int:
        return SERVER

    def _make_outer(self) -> DelayedNesterov:
        return DelayedNesterov(
            self.replica.w,
            lr=self.outer_lr,
            momentum=self.momentum,
            every=self.every or self.replica.comm.world_size,
            spread=self.spread,
        )

    def _make_server(self) -> UpdateServer:
        terms = Terms(self.period, self.dynamic, Delay.parse(self.max_wait).ns)
        return UpdateServer(range(self.replica.comm.world_size), self._outer, self._lock, terms)
