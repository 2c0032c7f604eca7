"""What a plan knows of an algorithm or a workload. Users' own ones are asked in a process of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from wanbench.harness.process.apart import OwnCodeError, call
from wanbench.harness.spec.tables import TrainTable, WorkloadTable
from wanbench.netprofiles import Delay, UnitError
from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Promises, Setting
from wanbench.workloads.compression.base import Compressor
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.parameters import default_of
from wanbench.workloads.registry import WorkloadInfo, info

T = TypeVar("T")
Params = Mapping[str, Any]


@dataclass(frozen=True)
class KnownAlgorithm:
    """The properties of `workloads.algorithms.base.Algorithm` that a plan reads, by the same names.

    Attributes:
        changed: the parameters that differ from their default.
    """

    named: str
    params: Params
    kind: str
    label: str
    promises: Promises
    buckets: bool
    datagrams: bool
    own_pace: bool
    delay_steps: int
    period_steps: int
    in_flight: int
    compressor: Compressor | None
    changed: Params

    def tensors_per_message(self, momentum: float) -> int:
        """As the algorithm's. Raises: AlgorithmError."""
        return int(_asked(self.named, _called, self.named, self.params, "tensors_per_message", momentum))

    def message_bytes(self, numel: int, shapes: tuple[tuple[int, ...], ...] = ()) -> int:
        """As the algorithm's. Raises: AlgorithmError."""
        return int(_asked(self.named, _called, self.named, self.params, "message_bytes", numel, shapes))

    def check(self, setting: Setting) -> None:
        """As the algorithm's. Raises: AlgorithmError."""
        _asked(self.named, _called, self.named, self.params, "check", setting)


def algorithm(kind: str, params: Params) -> KnownAlgorithm:
    """Describe a built-in algorithm, or a user's own. Raises: AlgorithmError, OwnCodeError."""
    return _asked(kind, _described, kind, params)


def combinations(kind: str, params: Params) -> list[dict[str, object]]:
    """As `workloads.algorithms.registry.expand`. Raises: AlgorithmError, OwnCodeError."""
    return _asked(kind, registry.expand, kind, params)


def parameter_names(kind: str) -> list[str]:
    """The names of an algorithm's parameters. Raises: AlgorithmError, OwnCodeError."""
    return _asked(kind, _parameter_names, kind)


def workload(task: Mapping[str, object], train: Mapping[str, object]) -> WorkloadInfo:
    """As `workloads.registry.info`. Raises: WorkloadError; OwnCodeError: the user's model cannot be made."""
    model = task.get("model")
    if model is None:
        return info(task, train)
    try:
        return call(f"workload.model: {model!r}", info, task, train)
    except (WorkloadError, OwnCodeError):
        raise
    except ValueError as error:  # LearnerError, whose module would import torch here
        raise OwnCodeError(str(error)) from None


def _asked(kind: str, function: Callable[..., T], *arguments: object) -> T:
    return call(repr(kind), function, *arguments) if ":" in kind else function(*arguments)


def _described(kind: str, params: Params) -> KnownAlgorithm:
    made = registry.create(kind, params)
    known = made.parameters()
    names = ("kind", "label", "promises", "buckets", "datagrams", "own_pace", "delay_steps", "period_steps",
             "in_flight", "compressor")  # fmt: skip
    changed = {key: value for key, value in params.items() if value != default_of(known[key])}
    return KnownAlgorithm(
        named=kind, params=dict(params), changed=changed, **{name: getattr(made, name) for name in names}
    )


def _called(kind: str, params: Params, name: str, *arguments: object) -> Any:
    return getattr(registry.create(kind, params), name)(*arguments)


def _parameter_names(kind: str) -> list[str]:
    return list(registry.find(kind).parameters())


def workload_identity(task: WorkloadTable, train: TrainTable, step_times: Sequence[Delay]) -> dict[str, Any]:
    """The identity of a workload. It ignores how a time is written, the folder of the data, and defaults.

    `step_times`: by rank, if workers differ.
    """
    fields = task.identity()
    for key in sorted({"step_time", "step_cv"} & fields.keys()):
        with suppress(WorkloadError):  # the workload needs the key
            if workload_of(task.model_copy(update={key: None}), train) == workload_of(task, train):
                del fields[key]
    with suppress(UnitError):  # step_time = "real"
        fields |= {"step_time": str(Delay.parse(fields["step_time"]))} if "step_time" in fields else {}
    if step_times:
        fields["step_time"] = [str(time) for time in step_times]
    if task.data is not None:
        fields["data"] = Path(task.data).name
    return fields


def workload_of(task: WorkloadTable, train: TrainTable) -> WorkloadInfo:
    """Return the model and the compute time of a worker. Raises: WorkloadError, LearnerError."""
    return _workload(json.dumps([task.plain(), train.plain()], sort_keys=True))


@lru_cache(maxsize=256)
def _workload(tables_json: str) -> WorkloadInfo:
    """Cached, because a model must be built before its parameters can be counted."""
    task, train = json.loads(tables_json)
    return workload(task, train)
