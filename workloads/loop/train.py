"""The training loop: the same in a worker process and on the simulated clock, for every algorithm and workload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch

from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.algorithms.base import Algorithm, Replica
from wanbench.workloads.comm.base import Clock, Comm, CommError, Vector, Work
from wanbench.workloads.comm.membership import Membership, Minority
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compute.optim import Optimizer, configured, make
from wanbench.workloads.compute.task import Snapshot, Task
from wanbench.workloads.loop.elastic import Elastic
from wanbench.workloads.loop.job import Evaluated, Job, Outcome, Regrouped, StepRow, Sums
from wanbench.workloads.registry import make_task

Emit = Callable[[StepRow], None]
Windows = Callable[[], int]  # the sum of TCP's congestion windows, in segments

_MOST_ROUNDS = 2  # of the warm-up, as a multiple of the least
_GROWS = 1.05


@dataclass(frozen=True)
class Hooks:
    """What the place where a job runs wants to know of it.

    Attributes:
        emit: called with one row per step.
        warm: called when all workers are warm, before the first step; measurement begins after it.
        evaluating: called before each evaluation of a copy of the model, after training.
        windows: returns TCP's congestion windows; None on the simulated clock.
    """

    emit: Emit
    warm: Callable[[], None] = lambda: None
    evaluating: Callable[[], None] = lambda: None
    windows: Windows | None = None


def run(
    job: Job, comm: Comm, clock: Clock, hooks: Hooks, *, phantom: bool = False, membership: Membership | None = None
) -> Outcome:
    """Build the parts of a job, open TCP's windows, and train.

    Args:
        comm: connected to the peers; of a worker that has returned, `comm.membership.Alone`. clock: shared with them.
        membership: lets training go on without workers that are lost; None: they must stay.
        phantom: use vectors without payload, unless the workload trains a model.

    Raises:
        CommError: a peer is gone. AlgorithmError, WorkloadError, LearnerError, OptimizerError: the job is not valid.
    """
    metered = MeteredComm(comm, clock)
    algorithm = algorithms.create(job.kind, job.params)
    own = job.workload, job.rank, job.world_size, job.seed, clock, job.bucket_bytes, job.train
    task = make_task(*own, phantom=phantom, slow=job.slow)
    optimizer = make(configured(job.train, job.steps))
    if not job.returned:
        warm_up(metered, job, task.w, clock, hooks.windows)
    metered.payload_bytes = metered.messages_sent = metered.stall_ns = 0
    hooks.warm()
    elastic = None if membership is None else Elastic(membership, metered, clock)
    try:
        return train(job, task, algorithm, optimizer, metered, clock, hooks, elastic)
    finally:
        if membership is not None:
            membership.close()


def warm_up(comm: MeteredComm, job: Job, like: Vector, clock: Clock, windows: Windows | None = None) -> None:
    """Open TCP's windows on every channel with messages as long as those of training, then synchronise all workers.

    If `windows` is given, this lasts until the windows of no worker grow any more.

    Args:
        like: a vector of the kind to send: with a payload, or without.
    """
    most = job.warm_rounds * (1 if windows is None else _MOST_ROUNDS)
    before = after = 0
    for done in range(1, most + 1):
        _warm_round(comm, job, like, clock)
        if windows is not None and done >= job.warm_rounds - 1:
            before, after = after, windows()
            growing = torch.full((comm.world_size,), float(after > _GROWS * before))
            comm.all_reduce(growing).wait()
            if done >= job.warm_rounds and not growing.any():
                return
    comm.all_reduce(like.new_zeros(comm.world_size)).wait()


def _warm_round(comm: MeteredComm, job: Job, like: Vector, clock: Clock) -> None:
    """Send as many messages as training has in flight. At once, they would overflow the buffers of the network."""
    works: list[Work] = []
    for _ in range(job.warm_in_flight):
        if works:
            clock.sleep(job.warm_spacing_s)
        works.append(comm.all_reduce(like.new_zeros(job.warm_numel)))
    for work in works:
        work.wait()


def train(
    job: Job,
    task: Task,
    algorithm: Algorithm,
    optimizer: Optimizer,
    comm: MeteredComm,
    clock: Clock,
    hooks: Hooks,
    elastic: Elastic | None = None,
) -> Outcome:
    """Run `job.steps` steps.

    Each worker copies its model at each evaluation. After training, rank 0 evaluates the mean of the copies, which is
    the model that a user would keep, beside its own. So an evaluation costs training a copy of the model with its
    buffers, and waits for nothing. If workers can be lost, the lowest rank at the end evaluates its own copies.

    Args:
        elastic: lets training go on without workers that are lost. Without it, this raises CommError then.
    """
    training = _Training(job, task, algorithm, optimizer, comm, clock, hooks)
    returned = elastic is not None and job.returned
    while True:
        try:
            if returned or (elastic is not None and elastic.changes()):
                raise CommError("the membership changes")
            training.steps(elastic.changes if elastic is not None else None)
            training.finish()
            break
        except CommError as error:
            if elastic is None or isinstance(error, Minority):
                raise
            made = None if returned else training.made
            training.made, returned = elastic.recover(training.replica, algorithm, made), False
    return training.outcome(elastic.history if elastic is not None else ())


class _Training:
    """The steps of one worker, and what is measured of them.

    Attributes:
        made: how many steps the model has made.
    """

    def __init__(
        self,
        job: Job,
        task: Task,
        algorithm: Algorithm,
        optimizer: Optimizer,
        comm: MeteredComm,
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        self._job, self._task, self._algorithm, self._optimizer = job, task, algorithm, optimizer
        self._comm, self._clock, self._hooks = comm, clock, hooks
        m = task.w.clone().zero_()
        self.replica = Replica(
            task.w,
            m,
            optimizer,
            comm,
            shapes=task.shapes,
            seed=job.seed,
            site_of=job.site_of,
            processing=clock.process,
        )
        algorithm.start(self.replica)
        comm.journal = [] if job.rank == 0 else None
        self._first = self._before = self._begin = self._end = self._last = _totals(task, comm, clock)
        self._losses: list[float] = []
        self._opened = [0, 0]
        self._copies: list[tuple[int, int, Snapshot]] = []
        self._copy_if_due(0, self._first.now_ns)
        self._spread: float | None = None
        self._before_drain: Snapshot | None = None
        self.made = 0

    def steps(self, changes: Callable[[], bool] | None) -> None:
        """Make the remaining steps. Raises: CommError, also if `changes` says before a step that a peer is lost."""
        while self.made < self._job.steps:
            if changes is not None and changes():
                raise CommError("the membership changes")
            self._step(self.made)
            self.made += 1

    def _step(self, step: int) -> None:
        job, task, algorithm, replica = self._job, self._task, self._algorithm, self.replica
        if step == job.window_begin:
            self._opened[0] = self._windows()
            self._before = self._begin = _totals(task, self._comm, self._clock)
        replica.step = step
        self._optimizer.advance(step)
        gradient, loss = task.gradient(step, algorithm.bucket if algorithm.buckets else None)
        self._optimizer.step(replica.w, replica.m, algorithm.gradient(gradient))
        algorithm.stepped()
        after = _totals(task, self._comm, self._clock)
        if step + 1 == job.window_begin + job.window_steps:
            self._end = after
            self._opened[1] = self._windows()
        self._copy_if_due(step + 1, after.now_ns)
        if loss is not None:
            self._losses.append(loss)
        self._hooks.emit(_row(job, step, self._before, after, loss))
        self._before = after

    def _copy_if_due(self, step: int, now_ns: int) -> None:
        if self._job.eval_every and step % self._job.eval_every == 0 and step < self._job.steps:
            self._copy(step, now_ns)

    def _copy(self, step: int, now_ns: int) -> None:
        """Copy the model after `step` steps, if this worker trains one."""
        snapshot = self._task.snapshot(self._algorithm.evaluated)
        if snapshot is not None:
            self._copies.append((step, now_ns, snapshot))

    def _windows(self) -> int:
        return 0 if self._hooks.windows is None else self._hooks.windows()

    def finish(self) -> None:
        """Wait for what is in flight, and compare the replicas. Raises: CommError."""
        before_drain = self._task.snapshot(self._algorithm.evaluated)
        self._algorithm.finish()
        self._before_drain = before_drain
        self._last = _totals(self._task, self._comm, self._clock)
        if self._end is self._first:  # another worker made the last measured step
            self._end = self._before
        self._spread = _spread(self._task.w, self._comm)

    def outcome(self, epochs: Sequence[Regrouped]) -> Outcome:
        """Evaluate the copies, and return what was measured."""
        journal, self._comm.journal = self._comm.journal or [], None
        self._copy(self._job.steps, self._last.now_ns)
        kept = [self._kept(own) for _, _, own in self._copies]  # before rank 0 evaluates, for which no peer has to wait
        pairs = zip(self._copies, kept, strict=True) if self._comm.rank == 0 else ()
        evaluations = [each for copy, mean in pairs if (each := self._evaluated(*copy, mean)) is not None]
        tail = self._losses[-max(1, len(self._losses) // 10) :]
        begin, end, first, last = self._begin, self._end, self._first, self._last
        return Outcome(
            window_begin_ns=begin.now_ns,
            window_end_ns=end.now_ns,
            window=end.sums - begin.sums,
            total=last.sums - first.sums,
            final_loss=sum(tail) / len(tail) if tail else None,
            replica_spread=self._spread,
            evaluations=evaluations,
            ended_ns=[] if self._alone else [now_ns for _, now_ns, _ in self._copies],
            messages=journal,
            slowed_ns=[] if self._task.slow is None else self._task.slow.turned_ns,
            tcp_windows=(self._opened[0], self._opened[1]),
            epochs=[*epochs],
            weights=None if not self._copies else sha256(self._copies[-1][2].w.numpy().tobytes()).hexdigest(),
        )

    @property
    def _alone(self) -> bool:
        """Whether rank 0's own model is evaluated: workers can be lost, it is a server's, or they never communicate."""
        return self._job.deadline_s is not None or self._algorithm.server or self._job.kind == "local"

    def _kept(self, own: Snapshot) -> Snapshot:
        """The model that a user would keep: the workers' mean, or rank 0's own if that is evaluated."""
        return own if self._alone else own.averaged(self._comm)

    def _evaluated(self, step: int, end_ns: int, own: Snapshot, kept: Snapshot) -> Evaluated | None:
        """Evaluate the models after a step; None if this rank cannot."""
        last = step == self._job.steps
        self._hooks.evaluating()
        accuracy = self._task.accuracy(kept)
        before_drain = self._task.accuracy(self._before_drain or own if last else own)
        if accuracy is None or before_drain is None:
            return None
        own_buffers = self._task.accuracy(Snapshot(kept.w, own.buffers)) if last and own.buffers else None
        return Evaluated(step, end_ns, accuracy, before_drain, own_buffers)


def _spread(w: Vector, comm: MeteredComm) -> float | None:
    if not isinstance(w, torch.Tensor):
        return None
    mean = w.clone()
    comm.all_reduce(mean).wait()
    largest = float(mean.abs().max())
    return float((w - mean).abs().max()) / largest if largest else 0.0


@dataclass(frozen=True)
class _Totals:
    """All since the begin of training, and the time on the shared clock."""

    now_ns: int
    sums: Sums


def _totals(task: Task, comm: MeteredComm, clock: Clock) -> _Totals:
    sums = Sums(
        compute_ns=task.compute_ns,
        stall_ns=comm.stall_ns,
        payload_bytes=comm.payload_bytes,
        messages_sent=comm.messages_sent,
        blocks_expected=comm.blocks_expected,
        blocks_lost=comm.blocks_lost,
    )
    return _Totals(clock.now(), sums)


def _row(job: Job, step: int, before: _Totals, after: _Totals, loss: float | None) -> StepRow:
    duration_ns, made = after.now_ns - before.now_ns, after.sums - before.sums
    return StepRow(
        rank=job.rank,
        step=step,
        end_ns=after.now_ns,
        step_time_s=duration_ns / 1e9,
        compute_s=made.compute_ns / 1e9,
        stall_s=made.stall_ns / 1e9,
        overhead_s=(duration_ns - made.compute_ns - made.stall_ns) / 1e9,
        payload_bytes=made.payload_bytes,
        messages_sent=made.messages_sent,
        loss=loss,
    )
