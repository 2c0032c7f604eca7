"""Training goes on when workers are lost or return: the model's way from one epoch of the membership to the next.

All operations in flight fail with the old epoch. Then, over the new epoch's comm, every member takes the mean model of
the members that have come furthest::

    n = the most steps that a member's model has made
    latest = members whose number of steps is in the same period as n: floor(steps / p) = floor(n / p)
    w, m, the optimiser's and the algorithm's lasting vectors <- their mean over `latest`
    the algorithm starts again, and every member goes on with step n

So a returned worker gets its model from the others, over the emulated network. Steps of a member that is not in
`latest` are lost; so are averages in flight, and residuals of compressors. Synchronous SGD loses nothing but the
interrupted step: its period is one step, and the models of `latest` are equal. If no worker waits for another
(`Promises.goes_on`), or only for a server, all members with a model are in `latest`, and each goes on with its own
step.
"""

from collections.abc import Sequence

from wanbench.workloads.algorithms.base import Algorithm, Replica
from wanbench.workloads.comm.base import Clock, CommError, Vector
from wanbench.workloads.comm.membership import Membership, Minority, View
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.loop.job import Regrouped


class Elastic:
    """A worker whose peers can be lost.

    Args:
        comm: follows the comm of each epoch.
    """

    def __init__(self, membership: Membership, comm: MeteredComm, clock: Clock) -> None:
        self._membership, self._comm, self._clock = membership, comm, clock
        self.history: list[Regrouped] = []
        self._sites: Sequence[int] | None = None  # of all workers of the job

    def changes(self) -> bool:
        """Whether `recover` is due."""
        return self._membership.changes()

    def recover(self, replica: Replica, algorithm: Algorithm, steps: int | None) -> int:
        """Go to the next epoch, with the model that its members agree on. Return the step to go on with.

        If another worker is lost meanwhile, go to the epoch after it.

        Args:
            steps: the number of steps that this worker's model has made; None if it has none yet.

        Raises:
            Minority: this side may be the smaller one.
        """
        begun, sent = self._clock.now(), self._comm.payload_bytes
        while True:
            try:
                asked = self._clock.now()
                view = self._membership.regroup(steps)
                self._comm.stall_ns += self._clock.now() - asked
                self._comm.follow(view.comm)
                self._sites = replica.site_of if self._sites is None else self._sites
                replica.site_of = [self._sites[member] for member in view.members] if self._sites else ()
                step = self._agree(view, replica, algorithm, steps)
                break
            except Minority:
                raise
            except CommError:
                continue
        ended = self._clock.now()
        self.history.append(
            Regrouped(
                view.epoch,
                list(view.members),
                list(view.steps),
                step,
                begun,
                ended,
                self._comm.payload_bytes - sent,
            )
        )
        return step

    def _agree(self, view: View, replica: Replica, algorithm: Algorithm, steps: int | None) -> int:
        """Take the mean model of the members that have come furthest. Raises: CommError."""
        step = max((made for made in view.steps if made is not None), default=None)
        if step is None:
            raise Minority("all workers with a model are lost")
        period = algorithm.period_steps
        alike = algorithm.own_pace  # however many steps they have made
        latest = [made is not None and (alike or made // period == step // period) for made in view.steps]
        weight = len(latest) / sum(latest) if latest[view.comm.rank] else 0.0
        means = [_weighted(vector, weight) for vector in _lasting(replica, algorithm)]
        for work in [self._comm.all_reduce(mean) for mean in means]:
            work.wait()  # before any vector is changed: an all-reduce that fails leaves no model
        replica.w.copy_(means[0])
        algorithm.start(replica)
        for vector, mean in zip(_lasting(replica, algorithm), means, strict=True):
            vector.copy_(mean)
        return steps if alike and steps is not None else step


def _weighted(vector: Vector, weight: float) -> Vector:
    """Return a copy with this weight in the mean; zeros for none, because a new model can hold anything."""
    copy = vector.clone()
    return copy.mul_(weight) if weight else copy.zero_()


def _lasting(replica: Replica, algorithm: Algorithm) -> list[Vector]:
    """Return the vectors that make up a model: w first."""
    momentum = [replica.m] if replica.optimizer.momentum else []
    return [replica.w, *momentum, *replica.optimizer.lasting(replica.w), *algorithm.lasting]
