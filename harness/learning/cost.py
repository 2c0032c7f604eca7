"""What trajectories cost: the time of a gradient and of an evaluation, measured on this host for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wanbench.harness.plan.cell import TrainingCell

_LEAST_S, _LEAST = 0.3, 5


@dataclass(frozen=True)
class Price:
    """Processor seconds of one worker's gradient, and of one evaluation."""

    gradient_s: float
    evaluation_s: float

    def of(self, cell: TrainingCell) -> float:
        """Processor seconds of a trajectory. Synchronising and compressing small vectors is left out."""
        every = cell.train.eval_every
        evaluations = 1 + (cell.steps // every if every else 0)
        return cell.workers * cell.steps * self.gradient_s + evaluations * self.evaluation_s


def measured(cells: Iterable[TrainingCell]) -> Price:
    """Measure with the data and the model of the first cell, on one thread as in a run. Takes a second."""
    import torch

    from wanbench.workloads.comm.clock import MonotonicClock
    from wanbench.workloads.registry import make_task

    cell = next(iter(cells))
    workload = cell.task.plain() | {"step_time": "real"}
    workload.pop("step_cv", None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task = make_task(
            workload, 0, cell.workers, cell.seed, MonotonicClock(), cell.comm.buckets.bytes, cell.train.plain()
        )
        return Price(_seconds(lambda: task.gradient(0)), _seconds(task.evaluate))
    finally:
        torch.set_num_threads(threads)


def _seconds(call: Callable[[], object]) -> float:
    """The mean processor time of a call, without the first; on a busy host it lasts longer."""
    call()
    began, calls = time.thread_time(), 0
    while calls < _LEAST or time.thread_time() - began < _LEAST_S:
        call()
        calls += 1
    return (time.thread_time() - began) / calls
