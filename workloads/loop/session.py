"""Set a training job up and run it: the same in a worker process and on the simulated clock."""

from __future__ import annotations

from collections.abc import Callable

from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.comm.base import Clock, Comm
from wanbench.workloads.comm.membership import Membership
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.loop.elastic import Elastic
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Emit, Outcome, Windows, make_optimizer, train, warm_up
from wanbench.workloads.registry import make_task


def run(
    job: Job,
    comm: Comm,
    clock: Clock,
    emit: Emit,
    *,
    warm: Callable[[], None] = lambda: None,
    windows: Windows | None = None,
    evaluating: Callable[[], None] = lambda: None,
    phantom: bool = False,
    membership: Membership | None = None,
) -> Outcome:
    """Build the parts of a job, open TCP's windows, and train.

    Args:
        comm: connected to the peers; of a worker that has returned, `comm.membership.Alone`. clock: shared with them.
        emit: called with one row per step.
        warm: called when all workers are warm, before the first step; measurement begins after it.
        evaluating: called before each evaluation of a copy of the model, after training.
        windows: returns TCP's congestion windows; None on the simulated clock.
        membership: lets training go on without workers that are lost; None: they must stay.
        phantom: use vectors without payload, unless the workload trains a model.

    Raises:
        CommError: a peer is gone. AlgorithmError, WorkloadError, LearnerError, OptimizerError: the job is not valid.
    """
    metered = MeteredComm(comm, clock)
    algorithm = algorithms.create(job.kind, job.params)
    task = make_task(
        job.workload,
        job.rank,
        job.world_size,
        job.seed,
        clock,
        job.bucket_bytes,
        job.train,
        phantom=phantom,
        slow=job.slow,
    )
    optimizer = make_optimizer(job)
    if not job.returned:
        warm_up(metered, job, task.w, clock, windows)
    metered.payload_bytes = metered.messages_sent = metered.stall_ns = 0
    warm()
    elastic = None if membership is None else Elastic(membership, metered, clock)
    try:
        return train(job, task, algorithm, optimizer, metered, clock, emit, windows, evaluating, elastic)
    finally:
        if membership is not None:
            membership.close()
