"""Stochastic Gradient Push: averages by push-sum gossip over a directed graph that changes each step.

Node i keeps y_i = (x_i, omega_i): the push-sum numerator x_i, shape (numel,), and its weight, initially 1. The
parameters it trains are z_i = x_i / omega_i. Step k, with m out-neighbours and equal shares s = 1 / (m + 1)::

    x_i <- x_i + (change of z_i by the optimiser's step with the gradient at z_i)
    send s y_i to each out-neighbour of step k
    y_i <- s y_i + (sum of the shares from the in-neighbours)
    z_i <- x_i / omega_i

The sum of all y, including those in flight, never changes, so the weights add up to N and every z tends to the mean.
The weight travels with the numerator, as the last element of the message. Momentum stays local.

**Wait**: by default a step waits for its shares without limit. With `wait` it continues after that time and adds the
shares at the end of a later step, once they have arrived. Nothing is lost: the weights compensate for missing shares,
as with overlap. A peer that is cut off therefore holds up no worker, and can rejoin with its own state.

**Overlap** (`osgp`): the shares of step k are added on arrival, at the end of step k + D at the latest. Until then
omega_i is smaller than 1, and differs between nodes if shares arrive at different times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import Field, dataclass, field
from typing import Any

from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises, Replica, Setting, at_least
from wanbench.workloads.algorithms.peers import exponential
from wanbench.workloads.comm.base import CommError, PatientWork, Vector, Work
from wanbench.workloads.compute.phantom import Phantom

FOREVER = "forever"


@dataclass
class Shares:
    """The shares from the in-neighbours of one step, and this node's sends of that step."""

    arriving: list[tuple[Vector, Work]]
    sends: Sequence[Work]
    age: int = 0

    def done(self) -> bool:
        """True if everything has arrived and left."""
        return all(work.done() for work in [*(work for _, work in self.arriving), *self.sends])


class PushSum(Algorithm):
    """Push-sum gossip on the directed exponential graph, at most `delay_steps` late."""

    without_a_peer = "steps wait; with `wait` they continue, after waiting that long for each share that is due"
    state = ("_y",)
    least_workers = 2

    peers: int
    wait: str

    @property
    def wait_s(self) -> float | None:
        """Maximum wait for a share that is due, in seconds; None is unlimited."""
        return None if self.wait == FOREVER else Delay.parse(self.wait).seconds

    def _check(self, name: str, value: object, item: Field[Any]) -> None:
        super()._check(name, value, item)
        if name == "wait" and value != FOREVER and not self._parsed(name, value, Delay).ns:
            self.refuse(name, value, f"more than 0, or {FOREVER!r}")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        if self.peers > setting.workers - 1:
            self.refuse("peers", self.peers, f"at most {setting.workers - 1} with {setting.workers} workers")
        if self.wait_s is not None and setting.collective == "gloo":
            raise AlgorithmError(f"algorithm '{self.kind}': wait: collective 'gloo' cannot stop waiting; use 'direct'")

    def operations(self, world_size: int) -> int:
        """Send and receive one share per peer."""
        return 2 * self.peers

    def start(self, replica: Replica) -> None:
        super().start(replica)
        numel = replica.w.numel()
        self._y = replica.w.new_zeros(numel + 1)
        self._x, self._omega = self._y[:numel], self._y[numel:]
        self._x.copy_(replica.w)
        self._omega.fill_(1.0)
        self._before = replica.w.clone()
        self._shares: deque[Shares] = deque()
        self._late: list[tuple[Vector, Work]] = []  # shares that did not arrive in time
        self._leaving: list[Work] = []  # sends that no step waits for

    @property
    def weight(self) -> float:
        """omega; 1 if vectors have no values."""
        return 1.0 if isinstance(self._y, Phantom) else float(self._omega)

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: the step is local."""
        self._before.copy_(self.replica.w)
        return g

    def stepped(self) -> None:
        """Add the local step to the numerator, push shares, and pull those that have arrived or are due.

        Raises:
            CommError: a peer is gone.
        """
        self._x.add_(self.replica.w).add_(self._before, alpha=-1.0)
        for shares in self._shares:
            shares.age += 1
        self._push()
        while self._shares and (self._shares[0].age >= self.delay_steps or self._shares[0].done()):
            self._pull(self._shares.popleft())
        self._collect()
        self._debias()

    def finish(self) -> None:
        """Pull all shares in flight, without a time limit. As always with gossip, replicas still differ afterwards.

        Raises:
            CommError: a peer is gone.
        """
        while self._shares:
            self._pull(self._shares.popleft())
        for vector, work in self._late:
            work.wait()
            self._y.add_(vector)
        for work in self._leaving:
            work.wait()
        self._late, self._leaving = [], []
        self._debias()

    def _push(self) -> None:
        comm = self.replica.comm
        if comm.world_size == 1:
            return
        outs, ins = exponential(comm.rank, self.replica.step, comm.world_size, self.peers)
        self._y.mul_(1.0 / (len(outs) + 1))
        sends = [comm.send(self._y, peer) for peer in outs]
        vectors = [self._y.clone() for _ in ins]
        self._shares.append(Shares([(v, comm.recv(v, peer)) for v, peer in zip(vectors, ins, strict=True)], sends))

    def _pull(self, shares: Shares) -> None:
        if self.wait_s is not None:
            self._late += [share for share in shares.arriving if not self._added(share, self.wait_s)]
            self._leaving += shares.sends
            return
        for vector, work in shares.arriving:
            work.wait()
            self._y.add_(vector)
        for work in shares.sends:
            work.wait()

    def _collect(self) -> None:
        """Collect what has finished without being waited for: late shares and sends."""
        self._late = [share for share in self._late if not self._added(share, 0.0)]
        leaving = []
        for work in self._leaving:
            if work.done():
                work.wait()
            else:
                leaving.append(work)
        self._leaving = leaving

    def _added(self, share: tuple[Vector, Work], wait_s: float) -> bool:
        """Add a share; False if it does not arrive in time."""
        vector, work = share
        if not work.done():
            if not wait_s:
                return False
            if not isinstance(work, PatientWork):
                raise CommError(f"{type(work).__name__} supports no wait with a time limit")
            if not work.wait_for(wait_s):
                return False
        work.wait()
        self._y.add_(vector)
        return True

    def _debias(self) -> None:
        self.replica.w.copy_(self._x).mul_(1.0 / self.weight)


@dataclass
class SGP(PushSum):
    """Gossip on a directed graph: each step sends to one or a few peers.

    Stochastic Gradient Push; the module has the equations.

    Attributes:
        peers: m, out-neighbours per step; 1 or more, below the number of workers.
        wait: maximum wait for each share in its step, such as "200ms"; "forever" is unlimited.
    """

    kind = "sgp"
    source = "Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push, ICML 2019"
    symbols = {"peers": "peers per iteration"}  # noqa: RUF012

    peers: int = field(default=1, metadata=at_least(1))
    wait: str = FOREVER

    @property
    def promises(self) -> Promises:
        """Nodes have as many in- as out-neighbours, so weights stay 1 unless a `wait` leaves out a share."""
        waits = self.wait_s is None
        return Promises(repeats=waits, keeps_mean=waits, goes_on=not waits)
