"""When the accuracy reached its target, between two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Reached:
    """The first time at which the accuracy was at the target, by linear interpolation between evaluations.

    Attributes:
        steps: number of steps until then. seconds: time since the begin of step 0.
    """

    steps: float
    seconds: float


def reached(evaluations: Sequence[Mapping[str, Any]], target: float, begin_ns: int) -> Reached | None:
    """Return when the accuracy first crossed `target`; None if no evaluation is at the target or above.

    The accuracy of the evaluation before the crossing is below the target, so it lies between the two. If the first
    evaluation is at the target already, its own step and time are returned: an upper bound, unless it is of step 0.

    Args:
        evaluations: in order, each with `step`, `end_ns` and `accuracy`. begin_ns: when step 0 began.
    """
    if not evaluations:
        return None
    first = evaluations[0]
    if first["accuracy"] >= target:
        return Reached(float(first["step"]), (first["end_ns"] - begin_ns) / 1e9)
    for below, above in pairwise(evaluations):
        if above["accuracy"] >= target:
            share = (target - below["accuracy"]) / (above["accuracy"] - below["accuracy"])
            steps = below["step"] + share * (above["step"] - below["step"])
            end_ns = below["end_ns"] + share * (above["end_ns"] - below["end_ns"])
            return Reached(steps, (end_ns - begin_ns) / 1e9)
    return None
