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
shares at the end of a later step, once they have arrived. Nothing is lost: the weights compensate for missing shares.
A peer that is cut off therefore holds up no worker, and can rejoin with its own state.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any

from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import AlgorithmError, Promises, Replica, Setting, at_least
from wanbench.workloads.algorithms.gossip import Gossip, exponential
from wanbench.workloads.algorithms.inbox import arrives, has_ended
from wanbench.workloads.comm.base import Phantom, Vector, Work

FOREVER = "forever"


class PushSum(Gossip):
    """What push-sum gossip on the directed exponential graph has in common; a subclass moves the shares."""

    without_a_peer = "steps wait; with `wait` they continue, after waiting that long for each share that is due"

    peers: int
    wait: str
    _x: Vector
    _omega: Any

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

    @property
    def weight(self) -> float:
        """omega; 1 if it has no value."""
        return 1.0 if isinstance(self._omega, Phantom) else float(self._omega)

    def _add_step(self) -> None:
        self._x.add_(self.replica.w).add_(self._before, alpha=-1.0)

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
    examples = ({"peers": 2}, {})
    state = ("_y",)

    peers: int = field(default=1, metadata=at_least(1))
    wait: str = FOREVER

    @property
    def promises(self) -> Promises:
        """Nodes have as many in- as out-neighbours, so weights stay 1 unless a `wait` leaves out a share."""
        waits = self.wait_s is None
        return Promises(repeats=waits, keeps_mean=waits, goes_on=not waits)

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
        self._arriving: list[tuple[Vector, Work]] = []
        self._late: list[tuple[Vector, Work]] = []  # shares that did not arrive in time
        self._leaving: list[Work] = []

    def stepped(self) -> None:
        """Add the local step to the numerator, push shares, and pull those of this step.

        Raises:
            CommError: a peer is gone.
        """
        self._add_step()
        self._push()
        self._pull()
        self._debias()

    def finish(self) -> None:
        """Pull all late shares, without a time limit. As always with gossip, replicas still differ afterwards.

        Raises:
            CommError: a peer is gone.
        """
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
        self._leaving += [comm.send(self._y, peer) for peer in outs]
        vectors = [self._y.clone() for _ in ins]
        self._arriving = [(vector, comm.recv(vector, peer)) for vector, peer in zip(vectors, ins, strict=True)]

    def _pull(self) -> None:
        arriving, self._arriving = self._arriving, []
        late = [share for share in arriving if not self._added(share, self.wait_s)]
        self._late = [share for share in [*self._late, *late] if not self._added(share, 0.0)]
        self._leaving = [work for work in self._leaving if not self._has_left(work)]

    def _added(self, share: tuple[Vector, Work], wait_s: float | None) -> bool:
        """Add a share; False if it does not arrive in time."""
        vector, work = share
        if not arrives(work, wait_s):
            return False
        work.wait()
        self._y.add_(vector)
        return True

    def _has_left(self, work: Work) -> bool:
        """True if a send has ended. Without a limit, a step waits for it."""
        if self.wait_s is not None:
            return has_ended(work)
        work.wait()
        return True
