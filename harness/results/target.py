"""When a trajectory reached its target, between two evaluations. Pure."""

import math
from bisect import bisect_left
from collections.abc import Sequence

from wanbench.workloads.loop.job import Evaluated


def reached(evaluations: Sequence[Evaluated], target: float, begin_ns: int) -> tuple[float, float] | None:
    """Return when the accuracy first crossed `target`, by linear interpolation between evaluations: the number of steps
    until then, and the seconds since the begin of step 0. None if no evaluation is at the target or above.

    Args:
        evaluations: in order. begin_ns: when step 0 began.
    """
    at = [evaluation.step for evaluation in evaluations]
    steps = steps_to_target(at, [evaluation.accuracy for evaluation in evaluations], target)
    if steps is None:
        return None
    seconds = value_at(at, [(evaluation.end_ns - begin_ns) / 1e9 for evaluation in evaluations], steps)
    assert seconds is not None  # the steps are between two evaluations
    return steps, seconds


def steps_to_target(
    steps: Sequence[float], values: Sequence[float | None], target: float, *, falling: bool = False
) -> float | None:
    """The number of steps until the target is first reached, interpolated between evaluations; None if never.

    The time to the target on a network is this number times the step time there.

    Args:
        steps: numbers of finished steps at the evaluations, ascending. values: the value at each; None or NaN, as after
            training diverged, reaches nothing.
        target: an accuracy, or with `falling` a loss. A first evaluation that has reached it already counts with its
            own step, which is too late rather than too early.
    """
    sign = -1.0 if falling else 1.0
    before: tuple[float, float] | None = None
    for step, value in zip(steps, values, strict=True):
        if value is None or not math.isfinite(value):
            before = None
            continue
        if sign * value >= sign * target:
            if before is None:
                return float(step)
            earlier, low = before
            return earlier + (step - earlier) * (target - low) / (value - low)
        before = (float(step), value)
    return None


def value_at(steps: Sequence[float], values: Sequence[float | None], step: float) -> float | None:
    """The value after `step` steps, interpolated between evaluations; None before the first or after the last one."""
    at = bisect_left(steps, step)
    value = values[at] if at < len(steps) else None
    if value is None or steps[at] == step:
        return value
    before = values[at - 1] if at else None
    if before is None:
        return None
    return before + (value - before) * (step - steps[at - 1]) / (steps[at] - steps[at - 1])
