"""Cells that lose workers: what happens in a repetition, and how long the others wait."""

from __future__ import annotations

from wanbench.harness.plan.cell import Cell, TrainingCell
from wanbench.harness.plan.law import predict
from wanbench.harness.spec.tables import count
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.failures import FailureRates, Place, failures

_FAILING_SHARE = 20  # machines fail for so many times the predicted time of training, so that it always ends
_SETTLED_STEPS, _SETTLED_S = 30, 10.0  # after so many steps and seconds, a worker that returned has a model
_LEAST_DEADLINE_S, _ROUND_TRIPS = 1.0, 4  # of a deadline, for connections to be made on a busy host


def changes_of(cell: Cell, rep: int) -> tuple[Change, ...]:
    """The changes of a cell's timeline, and the random failures of one repetition."""
    if not isinstance(cell, TrainingCell) or cell.failures.mtbf == "none":
        return cell.changes
    rates = FailureRates(cell.failures.mtbf.seconds, cell.failures.mttr.seconds)
    machines: dict[Place, list[int]] = {}
    for rank, site in enumerate(cell.placement):
        machines.setdefault(rank if cell.failures.by == "worker" else site, []).append(rank)
    until_s = _FAILING_SHARE * cell.steps * predict(cell.law_inputs).step_time_s
    drawn = failures(rates, machines, seed=cell.seed + rep, until_s=until_s, settled_s=_settled_s(cell))
    return (*cell.changes, *drawn)


def deadline_s(cell: TrainingCell) -> float | None:
    """The time after which workers go on without one that cannot be reached; None if they wait for it."""
    if not cell.loses_workers:
        return None
    law = predict(cell.law_inputs)
    return count(cell.comm.deadline) * law.step_time_s + _LEAST_DEADLINE_S + _ROUND_TRIPS * cell.law_inputs.rtt_s


def _settled_s(cell: TrainingCell) -> float:
    """When a worker that returned is sure to have a model: the same for every algorithm."""
    return _SETTLED_STEPS * cell.law_inputs.step_time_s + _SETTLED_S
