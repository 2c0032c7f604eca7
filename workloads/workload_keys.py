"""Read and check the keys of a spec's `[workload]` table, and the keys of `[train]` that concern a workload.

The table of the spec has checked which keys there are.
"""

import math
from collections.abc import Callable, Mapping

from wanbench.netprofiles.errors import UnitError
from wanbench.netprofiles.units import Delay
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.data.shards import DEFAULT_BATCH_SIZE, Shards

REAL = "real"
ASSUMED_STEP_CV = 0.02
"""Assumption: steps of one machine vary by 2 %. Without variation, methods that wait for the slowest look too good."""
MAX_PROCESSES = 16  # per worker, of a command

_KEYS = {
    "name": ("name", "data", "step_time", "step_cv", "payload_scale"),
    "params": ("params", "tensors", "step_time", "step_cv", "payload_scale"),
    "model": ("model", "step_time", "step_cv", "payload_scale"),
    "command": ("command", "step_times", "warmup", "nproc_per_worker", "rendezvous", "scaling", "timeout"),
}


def kind_of(spec: Mapping[str, object], train: Mapping[str, object]) -> str:
    """Return what a workload is: name, params, model or command. Raises: WorkloadError: two keys exclude each other."""
    batch_size(train)
    shards(train)
    folds(train)
    kinds = [kind for kind in _KEYS if kind in spec]
    if len(kinds) != 1:
        got = " and ".join(kinds) if kinds else "none"
        raise WorkloadError(f"workload: expected exactly one of name, params, model or command, got {got}")
    kind = kinds[0]
    for key in spec:
        if key not in _KEYS[kind]:
            takers = " or ".join(other for other, keys in _KEYS.items() if key in keys)
            raise WorkloadError(f"workload.{key}: not allowed with {kind}; only {takers} takes it")
    return kind


def step_time_s(spec: Mapping[str, object], default: float | None, *, may_be_real: bool) -> float | None:
    """Return the mean emulated duration of a step in seconds, or None if its compute is real.

    Args:
        spec: the `[workload]` table.
        default: the value without `step_time`.
        may_be_real: whether `step_time = "real"` is allowed: only for workloads that train a model.
    """
    if "step_time" not in spec:
        return default
    if spec["step_time"] == REAL and may_be_real:
        return None
    return duration("workload.step_time", str(spec["step_time"])).seconds


def duration(key: str, text: str) -> Delay:
    """Return the time of a step, if it is more than zero; `key` names it in errors."""
    try:
        time = Delay.parse(text)
    except UnitError as error:
        raise WorkloadError(f"{key}: {error}") from error
    if time.ns <= 0:
        raise WorkloadError(f'{key}: expected more than zero, such as "300ms", got {text!r}')
    return time


def step_cv(spec: Mapping[str, object], mean_s: float | None, default: float = ASSUMED_STEP_CV) -> float:
    """Return the coefficient of variation of an emulated step whose mean is `mean_s`; 0 if compute is real.

    `default`: the value without `step_cv`.
    """
    if "step_cv" not in spec:
        return 0.0 if mean_s is None else default
    if mean_s is None:
        raise WorkloadError("workload.step_cv: real compute has its own variation; add step_time to emulate it")
    expected = "a number of at least 0, such as 0.02"
    return _number("workload.step_cv", spec["step_cv"], expected, lambda cv: 0 <= cv < math.inf)


def payload_scale(spec: Mapping[str, object], learns: bool) -> float:
    """Return the factor on message sizes, in (0, 1]; 1 if the workload trains a model."""
    expected = "a number above 0 and up to 1"
    scale = _number("workload.payload_scale", spec.get("payload_scale", 1.0), expected, lambda scale: 0 < scale <= 1)
    if learns and scale != 1:
        raise WorkloadError(
            f"workload.payload_scale: expected 1, got {scale!r}; the workload trains a model, and real gradients "
            "cannot be scaled"
        )
    return scale


def whole_number(key: str, value: object, least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `least`; `key` names it in errors."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WorkloadError(f"{key}: expected a whole number of at least {least}, got {value!r}")
    return value


def batch_size(train: Mapping[str, object]) -> int:
    """Return the samples per worker and step, from the `[train]` table."""
    return whole_number("train.batch_size", train.get("batch_size", DEFAULT_BATCH_SIZE))


def shards(train: Mapping[str, object]) -> Shards:
    """Return how the data are divided over the workers, from the `[train]` table."""
    try:
        return Shards.parse(train.get("shards", "iid"))
    except ValueError as error:
        raise WorkloadError(f"train.shards: {error}") from error


def folds(train: Mapping[str, object]) -> int | None:
    """Return the number of parts the data are cut into, from the `[train]` table; None without `folds`."""
    if "folds" not in train:
        return None
    return whole_number("train.folds", train["folds"], least=2)  # with one, no data are left to train on


def _number(key: str, value: object, expected: str, is_right: Callable[[float], bool]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_right(value):
        raise WorkloadError(f"{key}: expected {expected}, got {value!r}")
    return float(value)
