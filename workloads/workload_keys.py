"""The keys of a spec's `[workload]` table, and those of `[train]` that concern one: read and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from wanbench.netprofiles.errors import UnitError, did_you_mean
from wanbench.netprofiles.units import Delay
from wanbench.workloads.data.errors import WorkloadError
from wanbench.workloads.data.portion import DEFAULT_BATCH_SIZE
from wanbench.workloads.data.shards import Shards

KINDS = ("name", "params", "model", "command")
REAL = "real"
ASSUMED_STEP_CV = 0.02
"""Assumption: steps of one machine vary by 2 %. None at all would flatter whoever waits for the slowest."""
MAX_PROCESSES = 16  # of a command, for each worker

_KEYS = {
    "name": ("name", "data", "step_time", "step_cv", "payload_scale"),
    "params": ("params", "tensors", "step_time", "step_cv", "payload_scale"),
    "model": ("model", "step_time", "step_cv", "payload_scale"),
    "command": ("command", "step_times", "warmup", "nproc_per_worker", "timeout"),
}


def kind_of(spec: Mapping[str, object], train: Mapping[str, object]) -> str:
    """Which of `KINDS` a workload is; the keys of both tables are known and go together."""
    batch_size(train)
    shards(train)
    folds(train)
    kinds = [kind for kind in KINDS if kind in spec]
    if len(kinds) != 1:
        got = " and ".join(kinds) if kinds else "none"
        raise WorkloadError(f"workload: expected exactly one of name, params, model or command, got {got}")
    kind = kinds[0]
    every_key = sorted({key for keys in _KEYS.values() for key in keys})
    for key in spec:
        if key not in every_key:
            raise WorkloadError(
                f"workload.{key}: unknown key{did_you_mean(key, every_key)} (known: {', '.join(every_key)})"
            )
        if key not in _KEYS[kind]:
            takers = " or ".join(other for other in KINDS if key in _KEYS[other])
            raise WorkloadError(f"workload.{key}: not together with {kind}; only {takers} takes it")
    return kind


def step_time_s(spec: Mapping[str, object], default: float | None, *, may_be_real: bool) -> float | None:
    """Mean emulated duration of a step in seconds, or None if its compute is real.

    Args:
        spec: the `[workload]` table.
        default: what holds without `step_time`.
        may_be_real: whether `step_time = "real"` makes sense, that is, whether something is learned.
    """
    if "step_time" not in spec:
        return default
    text = spec["step_time"]
    if text == REAL and may_be_real:
        return None
    if not isinstance(text, str):
        raise WorkloadError(f'workload.step_time: expected a duration with a unit, such as "300ms", got {text!r}')
    try:
        seconds = Delay.parse(text).seconds
    except UnitError as error:
        raise WorkloadError(f"workload.step_time: {error}") from error
    if seconds <= 0:
        raise WorkloadError(f'workload.step_time: expected more than zero, such as "300ms", got {text!r}')
    return seconds


def step_cv(spec: Mapping[str, object], mean_s: float | None, default: float = ASSUMED_STEP_CV) -> float:
    """Coefficient of variation of an emulated step whose mean is `mean_s`; 0 where nothing is emulated.

    `default`: what holds without `step_cv`.
    """
    if "step_cv" not in spec:
        return 0.0 if mean_s is None else default
    if mean_s is None:
        raise WorkloadError("workload.step_cv: real compute varies by itself; give step_time as well to emulate it")
    cv = _number("workload.step_cv", spec["step_cv"], "a number of at least 0, such as 0.02")
    if not 0 <= cv < math.inf:
        raise WorkloadError(f"workload.step_cv: expected a number of at least 0, such as 0.02, got {cv!r}")
    return cv


def payload_scale(spec: Mapping[str, object], learns: bool) -> float:
    """Factor on the size of messages, in (0, 1]; 1 where something is learned."""
    expected = "a number above 0 and up to 1"
    scale = _number("workload.payload_scale", spec.get("payload_scale", 1.0), expected)
    if not 0 < scale <= 1:
        raise WorkloadError(f"workload.payload_scale: expected {expected}, got {scale!r}")
    if learns and scale != 1:
        raise WorkloadError(
            f"workload.payload_scale: {scale!r} is not possible where something is learned; "
            "real gradients cannot be scaled, so leave it at 1"
        )
    return scale


def positive_int(key: str, value: object) -> int:
    """`value`, if it is a whole number of at least 1; `key` is where it stands."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{key}: expected a whole number of at least 1, got {value!r}")
    return value


def batch_size(train: Mapping[str, object]) -> int:
    """Samples of one worker in one step, from the `[train]` table."""
    return positive_int("train.batch_size", train.get("batch_size", DEFAULT_BATCH_SIZE))


def shards(train: Mapping[str, object]) -> Shards:
    """How the data are divided over the workers, from the `[train]` table."""
    try:
        return Shards.parse(train.get("shards", "iid"))
    except ValueError as error:
        raise WorkloadError(f"train.shards: {error}") from error


def folds(train: Mapping[str, object]) -> int | None:
    """Into how many parts the data are cut, from the `[train]` table; None: they are not."""
    if "folds" not in train:
        return None
    count = positive_int("train.folds", train["folds"])
    if count < 2:  # nothing would be left to train on
        raise WorkloadError(f"train.folds: expected a whole number of at least 2, got {count!r}")
    return count


def data_folder(spec: Mapping[str, object]) -> Path | None:
    """Where the data set is, from the `[workload]` table; None: not said."""
    if "data" not in spec:
        return None
    folder = spec["data"]
    if not isinstance(folder, str) or not folder:
        raise WorkloadError(f"workload.data: expected a folder, got {folder!r}")
    return Path(folder).expanduser()


def _number(key: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WorkloadError(f"{key}: expected {expected}, got {value!r}")
    return float(value)
