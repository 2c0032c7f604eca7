"""Workloads by name, by numbers or by model: what a spec's `[workload]` table stands for.

`info` answers without importing torch (except for `model`, which has to be made to be measured), so that
planning and listing are quick; `make_task` builds what a worker runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netprofiles.errors import UnitError, did_you_mean
from netprofiles.units import Delay
from workloads.buckets import FLOAT32_BYTES, Bucket, ParameterTensor, plan_buckets, scaled_numel
from workloads.compute import EmulatedCompute, StepTime, ready_share
from workloads.models import digits_cnn, resnet50
from workloads.shards import Shards

if TYPE_CHECKING:
    from workloads.comm.base import Clock
    from workloads.models.learner import Learner
    from workloads.task import Task

KINDS = ("name", "params", "model", "command")
REAL = "real"
ASSUMED_STEP_CV = 0.02
"""Assumption: steps of one machine vary by 2 %. None at all would flatter whoever waits for the slowest."""
DEFAULT_BATCH_SIZE = 32

_KEYS = {
    "name": ("name", "step_time", "step_cv", "payload_scale"),
    "params": ("params", "tensors", "step_time", "step_cv", "payload_scale"),
    "model": ("model", "step_time", "step_cv", "payload_scale"),
}


class WorkloadError(ValueError):
    """A workload that does not exist or makes no sense; one line that names key, expectation and value."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A workload with a name.

    Attributes:
        description: one line with the sources of its numbers.
        tensors: its parameter tensors, in registration order.
        step_time_s: mean duration of a step, emulated unless the spec says otherwise.
        dataset: what it learns from, or None if it learns nothing.
    """

    description: str
    tensors: Callable[[], tuple[ParameterTensor, ...]]
    step_time_s: float
    dataset: str | None = None


BUILTINS: Mapping[str, Builtin] = {
    "resnet50-v100": Builtin(
        "ResNet-50 on one V100: 25 557 032 parameters in 161 tensors (He et al. 2016), 300 ms a step "
        "(published: Zhu, Lu, Lin, Han 2019), timing only",
        resnet50.tensors,
        0.3,
    ),
    "digits-cnn": Builtin(
        "a small CNN that learns scikit-learn's 8x8 digits for real; 20 ms a step (assumed)",
        digits_cnn.tensors,
        digits_cnn.STEP_TIME_S,
        digits_cnn.DATASET,
    ),
}


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """What is known of a workload before it runs.

    Attributes:
        name: a built-in's name, `by-numbers-<params>`, or a model's "package.module:make".
        params: parameters of the model, not scaled.
        tensors: parameter tensors.
        payload_scale: factor on the size of messages and buckets, in (0, 1].
        step_time_s: mean emulated duration of a step in seconds; None: it takes the time it takes.
        step_cv: coefficient of variation of the emulated duration; 0 where nothing is emulated.
        learns: True if gradients are real.
        dataset: what it learns from, if known.
        parameters: its tensors, in registration order.
    """

    name: str
    params: int
    tensors: int
    payload_scale: float
    step_time_s: float | None
    step_cv: float
    learns: bool
    dataset: str | None
    parameters: tuple[ParameterTensor, ...] = field(repr=False)

    @property
    def message_bytes(self) -> int:
        """Bytes of one whole gradient on the wire: float32, scaled."""
        return scaled_numel(self.parameters, self.payload_scale) * FLOAT32_BYTES

    def buckets(self, bucket_bytes: int) -> tuple[Bucket, ...]:
        """Its scaled gradient buckets, in the order of completion; `bucket_bytes`: the cap before scaling."""
        return plan_buckets(self.parameters, bucket_bytes, self.payload_scale)

    def bucket_schedule(self, bucket_bytes: int) -> list[tuple[int, float]]:
        """Scaled bytes of each bucket and seconds from the beginning of a step of mean length until it is
        ready.

        Raises:
            WorkloadError: nothing is emulated, so that no schedule is known beforehand.
        """
        if self.step_time_s is None:
            raise WorkloadError(
                f"{self.name} has no schedule before it runs: its compute is real, not emulated"
            )
        step_time_s = self.step_time_s
        return [(b.nbytes, step_time_s * ready_share(b)) for b in self.buckets(bucket_bytes)]

    def to_json(self) -> dict[str, Any]:
        """A plain dict, without the individual tensors."""
        return {
            "name": self.name,
            "params": self.params,
            "tensors": self.tensors,
            "payload_scale": self.payload_scale,
            "step_time_s": self.step_time_s,
            "step_cv": self.step_cv,
            "learns": self.learns,
            "dataset": self.dataset,
            "message_bytes": self.message_bytes,
        }


def info(spec: Mapping[str, object], train: Mapping[str, object] | None = None) -> WorkloadInfo:
    """Check a `[workload]` table, and the keys of `[train]` that concern it, and say what it stands for.

    The table has exactly one of

    * `name`: a built-in. `step_time` and `step_cv` replace its own; `step_time = "real"` lets a workload that
      learns take the time it takes;
    * `params`, with `step_time` and optionally `tensors` (default 1; the parameters are split evenly over
      them) and `step_cv` (default 0.02);
    * `model`: "package.module:make", see `workloads.models.learner`. Its compute is real unless `step_time`
      is given;

    and optionally `payload_scale` where nothing is learned.

    Raises:
        WorkloadError: anything else.
        LearnerError: the model cannot be made.
    """
    kind = _kind(spec)
    train = {} if train is None else train
    batch_size(train)
    if "shards" in train and spec.get("name") != "digits-cnn":
        raise WorkloadError(
            "train.shards: only digits-cnn is sharded here; other workloads bring their own data"
        )
    shards(train)
    if kind == "name":
        return _by_name(spec)
    if kind == "params":
        return _by_numbers(spec)
    return _by_model(spec, batch_size(train))


def make_task(
    spec: Mapping[str, object],
    rank: int,
    world_size: int,
    seed: int,
    clock: Clock,
    bucket_bytes: int,
    train: Mapping[str, object] | None = None,
) -> Task:
    """The task of one worker; arguments are checked as `info` does.

    Args:
        spec: the `[workload]` table.
        rank, world_size: decide this worker's data and the variation of its steps.
        seed: of the repetition. The initial parameters depend on nothing else.
        clock: what emulated compute sleeps on.
        bucket_bytes: size at which a gradient bucket is closed, before payload scaling.
        train: the `[train]` table: `batch_size` (default 32) and `shards` (default "iid").
    """
    from workloads.task import EmulatedTask, LearningTask

    known = info(spec, train)
    buckets = known.buckets(bucket_bytes)
    emulated = None
    if known.step_time_s is not None:
        step_time = StepTime(known.step_time_s, known.step_cv, seed=seed, rank=rank)
        emulated = EmulatedCompute(step_time, buckets, clock)
    if known.learns:
        learner = _learner(spec, rank, world_size, seed, {} if train is None else train)
        return LearningTask(learner, buckets, clock, emulated)
    assert emulated is not None, "a workload that learns nothing has an emulated step time"
    return EmulatedTask(buckets[0].stop, emulated, clock, seed=seed, rank=rank)


def batch_size(train: Mapping[str, object]) -> int:
    """Samples of one worker in one step, from the `[train]` table."""
    return _positive_int("train.batch_size", train.get("batch_size", DEFAULT_BATCH_SIZE))


def shards(train: Mapping[str, object]) -> Shards:
    """How the data are divided over the workers, from the `[train]` table."""
    try:
        return Shards.parse(train.get("shards", "iid"))
    except ValueError as error:
        raise WorkloadError(f"train.shards: {error}") from error


def _learner(
    spec: Mapping[str, object], rank: int, world_size: int, seed: int, train: Mapping[str, object]
) -> Learner:
    if "model" in spec:
        from workloads.models.learner import make_learner

        return make_learner(str(spec["model"]), rank, world_size, seed, batch_size(train))
    return digits_cnn.make(rank, world_size, seed, batch_size(train), shards(train))


def _by_name(spec: Mapping[str, object]) -> WorkloadInfo:
    name = spec["name"]
    if not isinstance(name, str) or name not in BUILTINS:
        known = ", ".join(BUILTINS)
        raise WorkloadError(
            f"workload.name: unknown workload {name!r}{did_you_mean(str(name), BUILTINS)} (known: {known})"
        )
    builtin = BUILTINS[name]
    learns = builtin.dataset is not None
    step_time_s = _step_time_s(spec, builtin.step_time_s, may_be_real=learns)
    return _info(spec, name, builtin.tensors(), step_time_s, builtin.dataset, learns=learns)


def _by_numbers(spec: Mapping[str, object]) -> WorkloadInfo:
    params = _positive_int("workload.params", spec["params"])
    count = _positive_int("workload.tensors", spec.get("tensors", 1))
    if count > params:
        raise WorkloadError(
            f"workload.tensors: {count} tensors cannot share {params} parameters; expected at most as many"
        )
    step_time_s = _step_time_s(spec, None, may_be_real=False)
    if step_time_s is None:
        raise WorkloadError('workload.step_time: missing; a workload by numbers needs one, such as "300ms"')
    sizes = [params // count + (1 if index < params % count else 0) for index in range(count)]
    tensors = tuple(ParameterTensor(f"tensor{i}", (size,), float(size)) for i, size in enumerate(sizes))
    return _info(spec, f"by-numbers-{params}", tensors, step_time_s, None, learns=False)


def _by_model(spec: Mapping[str, object], batch: int) -> WorkloadInfo:
    from workloads.models.learner import make_learner, parameter_tensors

    path = str(spec["model"])
    tensors = parameter_tensors(make_learner(path, 0, 1, 0, batch).module)
    return _info(spec, path, tensors, _step_time_s(spec, None, may_be_real=True), None, learns=True)


def _info(
    spec: Mapping[str, object],
    name: str,
    tensors: tuple[ParameterTensor, ...],
    step_time_s: float | None,
    dataset: str | None,
    *,
    learns: bool,
) -> WorkloadInfo:
    scale = _payload_scale(spec, learns)
    cv = _step_cv(spec, step_time_s)
    params = sum(tensor.numel for tensor in tensors)
    return WorkloadInfo(name, params, len(tensors), scale, step_time_s, cv, learns, dataset, tensors)


def _kind(spec: Mapping[str, object]) -> str:
    kinds = [kind for kind in KINDS if kind in spec]
    if len(kinds) != 1:
        got = " and ".join(kinds) if kinds else "none"
        raise WorkloadError(f"workload: expected exactly one of name, params, model or command, got {got}")
    kind = kinds[0]
    if kind == "command":
        raise WorkloadError(
            "workload.command: this version cannot run a command as a workload; "
            "give its numbers instead: params, tensors and step_time"
        )
    every_key = sorted({key for keys in _KEYS.values() for key in keys})
    for key in spec:
        if key not in every_key:
            raise WorkloadError(
                f"workload.{key}: unknown key{did_you_mean(key, every_key)} (known: {', '.join(every_key)})"
            )
        if key not in _KEYS[kind]:
            raise WorkloadError(f"workload.{key}: not together with {kind}; only params takes it")
    return kind


def _step_time_s(spec: Mapping[str, object], default: float | None, *, may_be_real: bool) -> float | None:
    if "step_time" not in spec:
        return default
    text = spec["step_time"]
    if text == REAL and may_be_real:
        return None
    if not isinstance(text, str):
        raise WorkloadError(
            f'workload.step_time: expected a duration with a unit, such as "300ms", got {text!r}'
        )
    try:
        seconds = Delay.parse(text).seconds
    except UnitError as error:
        raise WorkloadError(f"workload.step_time: {error}") from error
    if seconds <= 0:
        raise WorkloadError(f'workload.step_time: expected more than zero, such as "300ms", got {text!r}')
    return seconds


def _step_cv(spec: Mapping[str, object], step_time_s: float | None) -> float:
    if "step_cv" not in spec:
        return 0.0 if step_time_s is None else ASSUMED_STEP_CV
    if step_time_s is None:
        raise WorkloadError(
            "workload.step_cv: real compute varies by itself; give step_time as well to emulate it"
        )
    cv = _number("workload.step_cv", spec["step_cv"], "a number of at least 0, such as 0.02")
    if not 0 <= cv < math.inf:
        raise WorkloadError(f"workload.step_cv: expected a number of at least 0, such as 0.02, got {cv!r}")
    return cv


def _payload_scale(spec: Mapping[str, object], learns: bool) -> float:
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


def _number(key: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WorkloadError(f"{key}: expected {expected}, got {value!r}")
    return float(value)


def _positive_int(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{key}: expected a whole number of at least 1, got {value!r}")
    return value
