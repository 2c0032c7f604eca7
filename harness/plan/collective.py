"""Which collective is the fastest on a cell's network, by the step-time law."""

import math
from collections.abc import Iterator
from dataclasses import replace

from wanbench.harness.errors import as_spec_error
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.checks import refusal
from wanbench.harness.plan.law import COLLECTIVES, GLOO_OPERATIONS_PER_CHANNEL, Collective, predict
from wanbench.harness.plan.registry import workload_of


def with_collective(cell: TrainingCell, where: str) -> TrainingCell:
    """The cell with the collective and the channels that `auto` stands for: of the fastest step by the law.

    Raises:
        SpecError: the workload is wrong.
    """
    if cell.comm.collective != "auto":
        return replace(cell, channels=_channels(cell, where))
    return min(list(alternatives(cell, where)) or [_with(cell, "direct", where)], key=_rank)


def _rank(cell: TrainingCell) -> tuple[float, float]:
    """What to compare: the law's step time, also where it is not precise enough to publish, then the all-reduce's."""
    follows_law = cell.workload.step_time_s is not None and cell.algorithm().promises.follows_law
    return predict(cell.law_inputs).step_time_s if follows_law else 0.0, all_reduce_s(cell)


def alternatives(cell: TrainingCell, where: str) -> Iterator[TrainingCell]:
    """Yield the cell with each collective that its testbed and its algorithm can use."""
    for name in COLLECTIVES:
        other = _with(cell, name, where)
        if refusal(other) is None:
            yield other


def all_reduce_s(cell: TrainingCell) -> float:
    """The predicted seconds of an all-reduce of the cell's messages, alone on the network."""
    return predict(replace(cell.law_inputs, delay=0)).all_reduce_s


def _with(cell: TrainingCell, name: Collective, where: str) -> TrainingCell:
    cell = replace(cell, comm=cell.comm.model_copy(update={"collective": name}))
    return replace(cell, channels=_channels(cell, where))


def _channels(cell: TrainingCell, where: str) -> int:
    """Enough channels for the operations in flight: gloo runs two on each, direct any number on one."""
    if cell.comm.channels != "auto":
        return cell.comm.channels
    if cell.comm.collective != "gloo":
        return 1
    algorithm = cell.algorithm()
    in_flight = algorithm.in_flight * cell.messages_per_sync
    if algorithm.buckets:
        with as_spec_error(where, ValueError):
            in_flight = len(workload_of(cell.task, cell.train).buckets(cell.comm.buckets.bytes))
    return math.ceil(in_flight / GLOO_OPERATIONS_PER_CHANNEL)
