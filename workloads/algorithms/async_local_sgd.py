"""Asynchronous local SGD: a server takes an outer step whenever a worker has finished its local steps.

The server runs beside the worker of rank 0, and is never busy while nothing arrives. It merges updates in the order of
their arrival::

    worker k:  theta_k <- H_k steps of the local optimiser from theta ;  send g = theta - theta_k, wait for theta
    server:    theta <- DelayedNesterov(theta, g; outer_lr, momentum, N, c) ;  send theta to worker k

**Delayed Nesterov** (`delayed_nesterov`): the momentum changes only every N arrivals, because N updates at stale
parameters are no N steps in a row.

**Dynamic local updates**: worker k makes steps in proportion to its speed, so all are about equally late::

    H_k = max(1, floor(H * (seconds per step of the fastest worker) / (seconds per step of worker k)))

Speeds are those of the last round, without the time of messages. The first round has H steps.

**Groups**: with `max_wait`, the server merges what arrives within that time after the first update of a group, and then
lets all its workers go on at the same theta. It waits only while another update is due within `max_wait`. It knows that
from the worker's last round, and in the first round from its first step. What arrives at the same time is one group,
also without `max_wait`, and is merged in the order of ranks.
"""

from __future__ import annotations

import threading
from dataclasses import Field, dataclass, field

from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import Algorithm, Promises, Replica, Setting, at_least, between
from wanbench.workloads.algorithms.delayed_nesterov import DelayedNesterov
from wanbench.workloads.algorithms.server import Client, Desk, Letter, refuse_gloo
from wanbench.workloads.comm.background import BackgroundComm
from wanbench.workloads.comm.base import Vector, Work

SERVER = 0
_NS = 1e9


@dataclass
class Pace:
    """What the server knows about the speed of a worker, in nanoseconds.

    Attributes:
        step_ns: its compute time per step.
        due_ns: when its next update is expected.
        began_ns: when its round began; None in its first round.
        beyond_ns: from the begin of its last round to the arrival of its update, less its compute time.
    """

    step_ns: float
    due_ns: float
    began_ns: int | None = None
    beyond_ns: float = 0.0

    def arrived(self, now_ns: int, steps: float, step_ns: float) -> None:
        """Note the update of a round."""
        self.step_ns = step_ns
        if self.began_ns is not None:
            self.beyond_ns = now_ns - self.began_ns - steps * step_ns

    def begins(self, now_ns: int, steps: int) -> None:
        """Expect the update of a round that begins now."""
        self.began_ns = now_ns
        self.due_ns = now_ns + steps * self.step_ns + self.beyond_ns


class Server:
    """Merges the updates of all workers; see the module. It runs until all workers have written their last letter.

    Args:
        outer: the global vector and its steps.
        lock: held while the outer step changes it.
        max_wait_ns: see the module.
        period: H. dynamic: whether local steps are dynamic.
    """

    def __init__(
        self, outer: DelayedNesterov, lock: threading.Lock, max_wait_ns: int, period: int, *, dynamic: bool
    ) -> None:
        self._outer, self._lock, self._max_wait_ns = outer, lock, max_wait_ns
        self._period, self._dynamic = period, dynamic
        self._paces: dict[int, Pace] = {}

    def run(self, comm: BackgroundComm) -> None:
        """Serve all ranks.

        Raises:
            CommError: a peer is gone.
        """
        desk = Desk(comm, range(comm.world_size), self._outer.theta)
        while desk.sources:
            group = self._group(desk)
            for letter in group:
                self._merge(letter)
            for letter in group:
                if not letter.last:
                    steps = self._steps_of(letter.source)
                    self._paces[letter.source].begins(comm.now(), steps)
                    desk.answer(letter.source, self._outer.theta, steps)
        for rank in range(comm.world_size):
            desk.answer(rank, self._outer.theta, self._period)
        desk.drain()

    def _group(self, desk: Desk) -> list[Letter]:
        """Wait for an update, and return it with those that are merged together with it."""
        first: Letter | None = None
        group: list[Letter] = []
        while desk.sources:
            until_ns = None
            if first is not None:
                end_ns = first.arrived_ns + self._max_wait_ns
                soon = self._due_near(first.arrived_ns, desk.sources - {letter.source for letter in group})
                until_ns = end_ns if soon else desk.comm.now()
            letter = desk.take(until_ns)
            if letter is None:
                break
            if letter.vector is None and not letter.last:
                step_ns, steps = letter.values[1] * _NS, letter.values[0]
                self._paces[letter.source] = Pace(step_ns, letter.arrived_ns + steps * step_ns)
                continue
            first = first or letter
            group.append(letter)
        return group

    def _due_near(self, time_ns: int, sources: set[int]) -> bool:
        paces = [self._paces[source] for source in sources if source in self._paces]
        return any(abs(pace.due_ns - time_ns) <= self._max_wait_ns for pace in paces)

    def _merge(self, letter: Letter) -> None:
        steps, step_s = letter.values[:2]
        if letter.vector is None:
            return
        self._paces[letter.source].arrived(letter.arrived_ns, steps, step_s * _NS)
        with self._lock:
            self._outer.step(letter.vector)

    def _steps_of(self, rank: int) -> int:
        """H_k of the next round."""
        if not self._dynamic:
            return self._period
        fastest = min(pace.step_ns for pace in self._paces.values())
        own = self._paces[rank].step_ns
        return max(1, int(self._period * (fastest / own))) if own else self._period


@dataclass
class AsyncLocalSGD(Algorithm):
    """Local SGD without a common pace: a server takes an outer step for each worker that has finished its local steps.

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
    state = ("_outer", "_theta")

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

    @property
    def promises(self) -> Promises:
        """All workers end with the server's theta, which depends on when messages arrive."""
        return Promises(agrees=True, repeats=False)

    @property
    def period_steps(self) -> int:
        """H."""
        return self.period

    def operations(self, world_size: int) -> int:
        """On rank 0: a note expected from each worker and two answers under way to each, and its own message."""
        return 3 * world_size + 4

    def check(self, setting: Setting) -> None:
        super().check(setting)
        refuse_gloo(self.kind, setting)
        every = self.every or setting.workers
        if self.spread * every > 1:
            self.refuse("spread", self.spread, f"at most 1 / N = {1 / every:g}")

    def start(self, replica: Replica) -> None:
        super().start(replica)
        comm = replica.comm
        self._client = Client(comm, SERVER)
        self._theta, self._delta = replica.w.clone(), replica.w.clone()
        self._lock = threading.Lock()
        self._outer = DelayedNesterov(
            replica.w,
            lr=self.outer_lr,
            momentum=self.momentum,
            every=self.every or comm.world_size,
            spread=self.spread,
        )
        self._begin(self.period)
        self._greeted = False
        self._serving: Work | None = None
        self._serve()

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: steps are local."""
        self._serve()
        return g

    def stepped(self) -> None:
        """After H_k steps: send them, and wait for the server's answer.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        if not self._greeted:
            self._greeted = True
            self._client.post(None, self._goal - self._steps, self._step_s)
        if self._steps == self._goal:
            self._send(last=False)

    @property
    def evaluated(self) -> Vector:
        """The server's theta on rank 0; elsewhere the last one received."""
        if self.replica.comm.rank != SERVER:
            return self._theta
        with self._lock:
            return self._outer.theta.clone()

    def finish(self) -> None:
        """Send the steps since the last answer, and wait until all workers have done so.

        Raises:
            CommError: a peer is gone.
        """
        self._send(last=True)
        self._client.drain()
        if self._serving is not None:
            self._serving.wait()
        self._serving, self._greeted = None, False

    def _serve(self) -> None:
        """Run the server, unless it runs already: it ends with `finish`."""
        if self._serving is not None or self.replica.comm.rank != SERVER:
            return
        max_wait_ns = Delay.parse(self.max_wait).ns
        server = Server(self._outer, self._lock, max_wait_ns, self.period, dynamic=self.dynamic)
        self._serving = self._client.comm.background(server.run)

    @property
    def _step_s(self) -> float:
        """Seconds per step of this round, without waiting for messages."""
        return (self._client.comm.now() - self._began_ns) / _NS / self._steps

    def _begin(self, steps: int) -> None:
        self._goal, self._steps = steps, 0
        self._began_ns = self._client.comm.now()

    def _send(self, *, last: bool) -> None:
        w = self.replica.w
        delta = self._delta.copy_(self._theta).add_(w, alpha=-1.0) if self._steps else None
        self._client.post(delta, self._steps, self._step_s if self._steps else 0.0, last=last)
        (steps, *_) = self._client.answer(self._theta).wait()
        w.copy_(self._theta)
        self._begin(round(steps))
