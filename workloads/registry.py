"""Workloads by name, by numbers or by model, as in a spec's `[workload]` table.

`info` describes a workload without importing torch, which keeps planning and listing quick. Only `model` needs torch,
because the model must be built to be described. `make_task` builds the task that a worker runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanbench.netprofiles.errors import did_you_mean
from wanbench.workloads import workload_keys
from wanbench.workloads.comm.base import Clock, Phantom
from wanbench.workloads.compute.buckets import FLOAT32_BYTES, Bucket, plan_buckets, scaled_numel
from wanbench.workloads.compute.emulated import EmulatedCompute, Slowdowns, StepTime, ready_share
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.data.shards import Portion
from wanbench.workloads.models.builtins import BUILTINS, DATA_SETS, DataSet
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    from wanbench.workloads.compute.task import Task
    from wanbench.workloads.models.learner import Learner


_NO_DATA = DataSet(list)
_buckets = lru_cache(maxsize=32)(plan_buckets)  # a thousand simulated workers need the same ones


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """A workload as known before it runs.

    Attributes:
        name: a built-in's name, `by-numbers-<params>`, or a model's "package.module:make".
        params: number of parameters of the model, not scaled.
        tensors: number of parameter tensors.
        payload_scale: factor on the size of messages and buckets, in (0, 1].
        step_time_s: mean emulated duration of a step in seconds; None if compute is real.
        step_cv: coefficient of variation of the emulated duration; 0 if compute is real.
        learns: True if gradients are real.
        dataset: the data set it trains on, if known.
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
    def numel(self) -> int:
        """Number of elements of the flat vectors, scaled."""
        return scaled_numel(self.parameters, self.payload_scale)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of its parameter tensors; () if the flat vectors are scaled, which breaks up shapes."""
        return tuple(tensor.shape for tensor in self.parameters) if self.payload_scale == 1 else ()

    @property
    def message_bytes(self) -> int:
        """Bytes of one whole gradient on the wire: float32, scaled."""
        return self.numel * FLOAT32_BYTES

    def buckets(self, bucket_bytes: int) -> tuple[Bucket, ...]:
        """Return its scaled gradient buckets in order of completion; `bucket_bytes` is the cap before scaling."""
        return _buckets(self.parameters, bucket_bytes, self.payload_scale)

    def bucket_schedule(self, bucket_bytes: int) -> list[tuple[int, float]]:
        """Return the scaled bytes of each bucket, and the seconds from the beginning of a mean step until it is ready.

        Raises:
            WorkloadError: compute is real, so the schedule is not known beforehand.
        """
        if self.step_time_s is None:
            raise WorkloadError(f"{self.name} has no schedule before it runs: its compute is real, not emulated")
        return [(b.nbytes, self.step_time_s * ready_share(b)) for b in self.buckets(bucket_bytes)]

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without the individual tensors."""
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
    """Check a `[workload]` table and the keys of `[train]` that concern it, and describe the workload.

    The table has exactly one of

    * `name`: a built-in. `step_time` and `step_cv` replace its own; `step_time = "real"` makes compute real if the
      workload trains a model; `data` is the folder of a data set that is not bundled, see `data_folder`;
    * `params`, with `step_time` and optionally `tensors` (default 1; the parameters are split evenly over
      them) and `step_cv` (default 0.02);
    * `model`: "package.module:make", see `workloads.models.learner`. Its compute is real unless `step_time`
      is given;

    and, unless it trains a model, optionally `payload_scale`.

    Raises:
        WorkloadError: the table is anything else.
        LearnerError: the model cannot be made.
    """
    train = train or {}
    kind = workload_keys.kind_of(spec, train)
    _check_division(spec, train)
    return _described(spec, _users_learner(spec, 0, 1, 0, train) if kind == "model" else None)


def check_data(spec: Mapping[str, object]) -> None:
    """Check that the data set a `[workload]` table needs exists; quick, and without torch.

    Raises:
        WorkloadError: it is missing or in the wrong format, or a folder was given to a workload that needs none.
    """
    folder, data = data_folder(spec), _data_set(spec)
    if folder is not None and data.folder is None:
        raise WorkloadError(f"workload.data: {spec.get('name')} takes no folder; remove the key")
    if folder is not None:
        data.check(folder)
    data.digest()


def data_folder(spec: Mapping[str, object]) -> Path | None:
    """Return the folder of the data set: `data`, or a default below $WANBENCH_DATA or `data`; None if it needs none."""
    if "data" in spec:
        folder = spec["data"]
        if not isinstance(folder, str) or not folder:
            raise WorkloadError(f"workload.data: expected a folder, got {folder!r}")
        return Path(folder).expanduser()
    default = _data_set(spec).folder
    return None if default is None else Path(os.environ.get("WANBENCH_DATA") or "data") / default


def data_digest(spec: Mapping[str, object]) -> str | None:
    """Return a hash of the data that this machine provides; None if no machine provides other data.

    Raises:
        WorkloadError: this machine does not provide them.
    """
    return _data_set(spec).digest()


def _data_set(spec: Mapping[str, object]) -> DataSet:
    """The data set of a built-in workload; of others, one without data."""
    builtin = BUILTINS.get(str(spec.get("name")))
    return _NO_DATA if builtin is None or builtin.dataset is None else DATA_SETS[builtin.dataset]


def make_task(
    spec: Mapping[str, object],
    rank: int,
    world_size: int,
    seed: int,
    clock: Clock,
    bucket_bytes: int,
    train: Mapping[str, object] | None = None,
    *,
    phantom: bool = False,
    slow: Sequence[Mapping[str, Any]] = (),
) -> Task:
    """Build the task of one worker; arguments are checked as in `info`.

    Args:
        spec: the `[workload]` table. train: the `[train]` table, of which `batch_size` (default 32), `shards` (default
            "iid") and `folds` (default none) count.
        rank, world_size: determine this worker's data and the variation of its steps.
        seed: of the repetition, on which alone the initial parameters depend.
        bucket_bytes: size at which a gradient bucket is closed, before payload scaling.
        phantom: leave out the payload, unless the workload trains a model.
        slow: when emulated compute takes longer; fields of `workloads.compute.emulated.Slowdown`.
    """
    from wanbench.workloads.compute.task import EmulatedTask, LearningTask, random_gradient

    workload, learner = _with_learner(spec, rank, world_size, seed, train or {})
    buckets = workload.buckets(bucket_bytes)
    emulated, slowdowns = None, Slowdowns(slow) if slow else None
    if workload.step_time_s is not None:
        step_time = StepTime(workload.step_time_s, workload.step_cv, seed=seed, rank=rank)
        emulated = EmulatedCompute(step_time, buckets, clock, slowdowns)
    if learner is not None:
        task: Task = LearningTask(learner, buckets, clock, emulated)
    else:
        assert emulated is not None, "without a model to train, the step time is emulated"
        source = Phantom(workload.numel) if phantom else random_gradient(workload.numel, seed=seed, rank=rank)
        task = EmulatedTask(source, emulated, clock)
    task.shapes, task.slow = workload.shapes, slowdowns
    return task


def _with_learner(
    spec: Mapping[str, object], rank: int, world_size: int, seed: int, train: Mapping[str, object]
) -> tuple[WorkloadInfo, Learner | None]:
    """Describe a workload, with the learner of one worker; None if it trains no model. Keys are checked before data."""
    is_model = workload_keys.kind_of(spec, train) == "model"
    learner = _users_learner(spec, rank, world_size, seed, train) if is_model else None
    workload, builtin = _described(spec, learner), BUILTINS.get(str(spec.get("name")))
    if builtin is None or builtin.network is None:
        return workload, learner
    from wanbench.workloads.models.learner import learn

    check_data(spec)
    batch_size, shards, folds = workload_keys.batch_size(train), workload_keys.shards(train), workload_keys.folds(train)
    portion = Portion(rank, world_size, seed, batch_size, shards, folds, data_folder(spec))
    return workload, learn(portion, workload.name, builtin.network, _data_set(spec))


def _users_learner(
    spec: Mapping[str, object], rank: int, world_size: int, seed: int, train: Mapping[str, object]
) -> Learner:
    from wanbench.workloads.models.learner import make_learner

    return make_learner(str(spec["model"]), rank, world_size, seed, workload_keys.batch_size(train))


def _check_division(spec: Mapping[str, object], train: Mapping[str, object]) -> None:
    """Check that only built-in data sets are divided here."""
    sharded = [name for name, builtin in BUILTINS.items() if builtin.network is not None]
    if "shards" in train and spec.get("name") not in sharded:
        raise WorkloadError(f"train.shards: only {', '.join(sharded)} take it; other workloads divide their own data")
    cut = [name for name in BUILTINS if _data_set({"name": name}).folds]
    if "folds" in train and spec.get("name") not in cut:
        raise WorkloadError(f"train.folds: only {', '.join(cut)} takes it")


def _described(spec: Mapping[str, object], learner: Learner | None) -> WorkloadInfo:
    """Describe a workload; a `model` with its learner."""
    if "name" in spec:
        return _by_name(spec)
    if learner is None:
        return _by_numbers(spec)
    from wanbench.workloads.models.learner import parameter_tensors

    return _info(spec, str(spec["model"]), parameter_tensors(learner.module), learns=True)


def _by_name(spec: Mapping[str, object]) -> WorkloadInfo:
    name = spec["name"]
    if not isinstance(name, str) or name not in BUILTINS:
        near = did_you_mean(str(name), BUILTINS)
        raise WorkloadError(f"workload.name: unknown workload {name!r}{near} (known: {', '.join(BUILTINS)})")
    builtin = BUILTINS[name]
    learns = builtin.dataset is not None
    return _info(spec, name, builtin.tensors(), builtin.dataset, builtin.step_time_s, builtin.step_cv, learns=learns)


def _by_numbers(spec: Mapping[str, object]) -> WorkloadInfo:
    params = workload_keys.whole_number("workload.params", spec["params"])
    count = workload_keys.whole_number("workload.tensors", spec.get("tensors", 1))
    if count > params:
        raise WorkloadError(
            f"workload.tensors: {count} tensors cannot share {params} parameters; expected at most {params}"
        )
    if "step_time" not in spec:
        raise WorkloadError('workload.step_time: missing; a workload by numbers needs one, such as "300ms"')
    sizes = [params // count + (1 if index < params % count else 0) for index in range(count)]
    tensors = tuple(ParameterTensor(f"tensor{i}", (size,), float(size)) for i, size in enumerate(sizes))
    return _info(spec, f"by-numbers-{params}", tensors, learns=False)


def _info(
    spec: Mapping[str, object],
    name: str,
    tensors: tuple[ParameterTensor, ...],
    dataset: str | None = None,
    step_time_s: float | None = None,
    step_cv: float = workload_keys.ASSUMED_STEP_CV,
    *,
    learns: bool,
) -> WorkloadInfo:
    """Describe a workload; the step time and its variation are those without the keys of the spec."""
    step_time_s = workload_keys.step_time_s(spec, step_time_s, may_be_real=learns)
    return WorkloadInfo(
        name=name,
        params=sum(tensor.numel for tensor in tensors),
        tensors=len(tensors),
        payload_scale=workload_keys.payload_scale(spec, learns),
        step_time_s=step_time_s,
        step_cv=workload_keys.step_cv(spec, step_time_s, step_cv),
        learns=learns,
        dataset=dataset,
        parameters=tensors,
    )
