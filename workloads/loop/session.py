"""The session around a training job: the same in a worker process and on the simulated clock."""

from __future__ import annotations

from collections.abc import Callable

from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.comm.base import Clock, Comm
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.loop.job import Job
from wanbench.workloads.loop.train import Emit, Outcome, make_optimizer, train, warm_up
from wanbench.workloads.registry import make_task


def run(
    job: Job, comm: Comm, clock: Clock, emit: Emit, *, warm: Callable[[], None] = lambda: None, phantom: bool = False
) -> Outcome:
    """Make what the job describes, open TCP's windows, and train.

    Args:
        comm: to the peers, connected. clock: shared with them.
        emit: gets one row a step.
        warm: called when all workers are warm, before the first step; nothing before it counts.
        phantom: where nothing is learned, work on vectors without payload.

    Raises:
        CommError: a peer is gone. AlgorithmError, WorkloadError, LearnerError, OptimizerError: the job makes no sense.
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
    warm_up(metered, job, task.w)
    metered.payload_bytes = metered.messages_sent = metered.stall_ns = 0
    warm()
    return train(job, task, algorithm, optimizer, metered, clock, emit)
