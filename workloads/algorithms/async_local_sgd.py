"""Asynchronous local SGD: a server takes an outer step whenever a worker has finished its local steps.

The server runs beside the worker of rank 0, and is never busy while nothing arrives. It merges updates in the order of
their arrival::

    worker k:  theta_k <- H_k steps of the local optimiser from theta ;  send g = theta - theta_k, wait for theta
    server:    theta <- DelayedNesterov(theta, g; outer_lr, momentum, N, c) ;  send theta to worker k

**Delayed Nesterov** (`DelayedNesterov`): the momentum changes only every N arrivals, because N updates at stale
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

import threading
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import Field, dataclass, field
from typing import ClassVar

from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises, Replica, Setting, at_least, between
from wanbench.workloads.algorithms.server import Desk, Letter, Mail
from wanbench.workloads.comm.base import BackgroundComm, Vector, Work
from wanbench.workloads.comm.meter import background_of
from wanbench.workloads.state import Stateful


class DelayedNesterov(Stateful):
    """The global vector theta of a server, shape (numel,), and its step for each pseudo-gradient g::

        Delta <- Delta + g
        every N arrivals:  m <- beta m + Delta / N ;  Delta <- 0
                           theta <- theta - lr ((1 - c N + c) beta m + g / N)
        otherwise:         theta <- theta - lr (c beta m + g / N)

    N arrivals at the same theta are one Nesterov step with their mean.

    Args:
        theta: copied.
        lr: learning rate. momentum: beta. every: N. spread: c, from 0 to 1 / N.
    """

    state = ("theta", "_m", "_delta", "_arrivals")

    def __init__(self, theta: Vector, *, lr: float, momentum: float, every: int, spread: float = 0.0) -> None:
        self.theta = theta.clone()
        self._m, self._delta = theta.clone().zero_(), theta.clone().zero_()
        self._lr, self._momentum, self._every, self._spread = lr, momentum, every, spread
        self._arrivals = 0

    def step(self, g: Vector) -> None:
        """Take the step of one arrival, shape (numel,)."""
        n, c = self._every, self._spread
        self._delta.add_(g)
        self._arrivals = (self._arrivals + 1) % n
        if not self._arrivals:
            self._m.mul_(self._momentum).add_(self._delta, alpha=1.0 / n)
            self._delta.zero_()
            c = 1.0 - c * n + c
        self.theta.add_(g, alpha=-self._lr / n)
        if c:
            self.theta.add_(self._m, alpha=-self._lr * c * self._momentum)


NS = 1e9


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


class UpdateServer:
    """Merges the updates of workers until all have written their last letter.

    A letter with a vector is an update; its numbers are the local steps and their compute time per step in seconds. One
    without a vector says in how many steps the first update follows.

    Args:
        algorithm: that of this rank, with the vector, its steps, and a lock that is held while the vector changes.
        workers: their ranks.
        max_wait_ns: the longest wait of a group.

    Attributes:
        peers: the ranks of other servers that write.
    """

    def __init__(self, algorithm: Served, workers: Collection[int], max_wait_ns: int = 0) -> None:
        self.workers, self._algorithm, self._max_wait_ns = frozenset(workers), algorithm, max_wait_ns
        self.outer, self.lock = algorithm._outer, algorithm._lock
        self.peers: Collection[int] = ()
        self._paces: dict[int, Pace] = {}

    def updated(self, desk: Desk) -> None:
        """Called after each update."""

    def heard(self, desk: Desk, letter: Letter) -> None:
        """Called with each letter of another server."""

    def ended(self, desk: Desk) -> None:
        """Called when all workers have written their last letter, before they are answered."""

    def run(self, comm: BackgroundComm) -> None:
        """Serve.

        Raises:
            CommError: a peer is gone.
        """
        desk = Desk(comm, sorted({*self.workers, *self.peers}), self.outer.theta)
        while desk.sources & self.workers:
            group = self._group(desk)
            for letter in group:
                self._merge(desk, letter)
            for letter in group:
                if not letter.last:
                    steps = self._steps_of(letter.source)
                    self._paces[letter.source].begins(comm.now(), steps)
                    desk.answer(letter.source, self.outer.theta, steps)
        self.ended(desk)
        for worker in sorted(self.workers):
            desk.answer(worker, self.outer.theta, self._algorithm.period)
        desk.drain()

    def _group(self, desk: Desk) -> list[Letter]:
        """Wait for an update, and return it with those that are merged together with it."""
        group: list[Letter] = []
        while desk.sources & self.workers:
            letter = desk.take(self._until_ns(desk, group))
            if letter is None:
                break
            if letter.source not in self.workers:
                self.heard(desk, letter)
            elif letter.vector is None and not letter.last:
                steps, step_s = letter.values[:2]
                self._paces[letter.source] = Pace(step_s * NS, letter.arrived_ns + steps * step_s * NS)
            else:
                group.append(letter)
        return group

    def _until_ns(self, desk: Desk, group: list[Letter]) -> int | None:
        """Until when to wait for further updates of a group; None if it has none yet."""
        if not group:
            return None
        first_ns, limit_ns = group[0].arrived_ns, self._max_wait_ns
        awaited = desk.sources - {letter.source for letter in group}
        due = (self._paces[source].due_ns for source in awaited if source in self._paces)
        soon = any(abs(due_ns - first_ns) <= limit_ns for due_ns in due)
        return first_ns + limit_ns if soon else desk.comm.now()

    def _merge(self, desk: Desk, letter: Letter) -> None:
        if letter.vector is None:
            return
        steps, step_s = letter.values[:2]
        self._paces[letter.source].arrived(letter.arrived_ns, steps, step_s * NS)
        with self.lock:
            self.outer.step(letter.vector)
        self.updated(desk)

    def _steps_of(self, worker: int) -> int:
        """H_k of the next round."""
        period, own = self._algorithm.period, self._paces[worker].step_ns
        if not self._algorithm.dynamic or not own:
            return period
        fastest = min(pace.step_ns for pace in self._paces.values())
        return max(1, round(period * fastest / own))


class Served(Algorithm):
    """The worker's side: local steps from the server's theta, whose change is sent to it.

    A subclass says which rank serves this one, and with what. `finish` ends a round early.
    """

    server = True
    when_lost = (
        "the others shrink: they go on from the mean of their models, with a new server beside the lowest rank, whose "
        "momentum begins at zero. A worker that returns takes that model"
    )
    state: ClassVar[tuple[str, ...]] = ("_outer", "_theta")

    period: int
    dynamic: bool

    @property
    def promises(self) -> Promises:
        """All workers end with the server's theta, which depends on when messages arrive."""
        return Promises(agrees=True, repeats=False)

    def operations(self, world_size: int) -> int:
        """On a server's rank: what it expects from each worker, two answers under way to each, and its own messages."""
        return 4 * world_size + 6

    def check(self, setting: Setting) -> None:
        super().check(setting)
        if setting.collective == "gloo":
            raise AlgorithmError(
                f"algorithm '{self.kind}' waits for messages of any worker, which 'gloo' cannot; "
                "use collective 'direct'"
            )

    @property
    def _server_rank(self) -> int:
        """The rank beside which this worker's server runs."""
        return 0

    @abstractmethod
    def _make_outer(self) -> DelayedNesterov:
        """Return the vector of a server, with its steps."""

    @abstractmethod
    def _make_server(self) -> UpdateServer:
        """Return the server of this rank."""

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._theta, self._delta = replica.w.clone(), replica.w.clone()
        self._lock = threading.Lock()
        self._outer = self._make_outer()
        self._mail = Mail(background_of(replica.comm))
        self._serving: Work | None = None
        self._greeted = False
        self._serve()
        self._begin(self.period)

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: steps are local."""
        self._serve()
        return g

    def stepped(self) -> None:
        """After H_k steps: send their change, and wait for the server's answer.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        if not self._greeted:
            self._greeted = True
            self._mail.post(self._server_rank, None, self._goal - self._steps, self._step_s)
        if self._steps == self._goal:
            self._send(last=False)

    def finish(self) -> None:
        """Send the change since the last answer, and wait until all workers have done so.

        Raises:
            CommError: a peer is gone.
        """
        self._send(last=True)
        self._mail.drain()
        if self._serving is not None:
            self._serving.wait()
        self._serving, self._greeted = None, False

    @property
    def evaluated(self) -> Vector:
        """The server's theta beside the server; elsewhere the last one received."""
        if self.replica.comm.rank != self._server_rank:
            return self._theta
        with self._lock:
            return self._outer.theta.clone()

    @property
    def _step_s(self) -> float:
        """Compute time of this round in seconds per step."""
        return (self._mail.comm.now() - self._began_ns) / NS / self._steps

    def _serve(self) -> None:
        """Run the server of this rank, unless it runs already: it ends with `finish`."""
        if self._serving is None and self.replica.comm.rank == self._server_rank:
            self._serving = self._mail.comm.background(self._make_server().run)

    def _begin(self, steps: int) -> None:
        self._goal, self._steps = steps, 0
        self._began_ns = self._mail.comm.now()

    def _send(self, *, last: bool) -> None:
        w = self.replica.w
        change = self._delta.copy_(self._theta).add_(w, alpha=-1.0) if self._steps else None
        self._mail.post(self._server_rank, change, self._steps, self._step_s if self._steps else 0.0, last=last)
        (steps, *_) = self._mail.wait_for_answer(self._server_rank, self._theta)
        w.copy_(self._theta)
        self._begin(round(steps))


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
    spelt = ("momentum",)
    tried: ClassVar = {"period": (10, 50)}  # few: the law does not describe it, so each has to be simulated
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

    def _make_outer(self) -> DelayedNesterov:
        return DelayedNesterov(
            self.replica.w,
            lr=self.outer_lr,
            momentum=self.momentum,
            every=self.every or self.replica.comm.world_size,
            spread=self.spread,
        )

    def _make_server(self) -> UpdateServer:
        return UpdateServer(self, range(self.replica.comm.world_size), Delay.parse(self.max_wait).ns)
