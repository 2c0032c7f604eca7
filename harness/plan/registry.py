"""Algorithms and workloads as a plan knows them. Users' own ones are asked in a process of their own."""

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
from wanbench.workloads.algorithms.base import Promises, Setting
from wanbench.workloads.algorithms.registry import create, find
from wanbench.workloads.compression.base import Compressor
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.parameters import default_of
from wanbench.workloads.registry import WorkloadInfo, info

T = TypeVar("T")
Params = Mapping[str, Any]


@dataclass(frozen=True)
class AlgorithmInfo:
    """The properties of `workloads.algorithms.base.Algorithm` that a plan reads, by the same names.

    Attributes:
        named: its kind, or the "module:Class" by which a user named it.
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
        return int(self._call("tensors_per_message", momentum))

    def message_bytes(self, numel: int, shapes: tuple[tuple[int, ...], ...] = ()) -> int:
        """As the algorithm's. Raises: AlgorithmError."""
        return int(self._call("message_bytes", numel, shapes))

    def check(self, setting: Setting) -> None:
        """As the algorithm's. Raises: AlgorithmError."""
        self._call("check", setting)

    def _call(self, method: str, *arguments: object) -> Any:
        return _apart(self.named, _called, self.named, self.params, method, *arguments)


_DESCRIPTIONS: dict[tuple[str, str], AlgorithmInfo] = {}
"""Built-in algorithms by kind and parameters, because a plan asks the same about each of its cells, many times."""


def algorithm(kind: str, params: Params) -> AlgorithmInfo:
    """Describe a built-in algorithm, or a user's own. Raises: AlgorithmError, OwnCodeError."""
    if ":" in kind:
        return _apart(kind, _described, kind, params)
    setting = kind, repr(params)
    if setting not in _DESCRIPTIONS:
        _DESCRIPTIONS[setting] = _described(kind, params)
    return _DESCRIPTIONS[setting]


def parameter_names(kind: str) -> list[str]:
    """The names of an algorithm's parameters. Raises: AlgorithmError, OwnCodeError."""
    return _apart(kind, _parameter_names, kind)


def _apart(kind: str, function: Callable[..., T], *arguments: object) -> T:
    """Call a function; if the algorithm is a user's own, in another process."""
    return call(repr(kind), function, *arguments) if ":" in kind else function(*arguments)


def _described(kind: str, params: Params) -> AlgorithmInfo:
    made = create(kind, params)
    defaults = {name: default_of(parameter) for name, parameter in made.parameters().items()}
    names = ("kind", "label", "promises", "buckets", "datagrams", "own_pace", "delay_steps", "period_steps",
             "in_flight", "compressor")  # fmt: skip
    changed = {key: value for key, value in params.items() if value != defaults[key]}
    return AlgorithmInfo(
        named=kind, params=dict(params), changed=changed, **{name: getattr(made, name) for name in names}
    )


def _called(kind: str, params: Params, method: str, *arguments: object) -> Any:
    return getattr(create(kind, params), method)(*arguments)


def _parameter_names(kind: str) -> list[str]:
    return list(find(kind).parameters())


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
    """Return the model and the compute time of a worker.

    Raises: WorkloadError; OwnCodeError: the user's model cannot be made.
    """
    return _workload(json.dumps([task.plain(), train.plain()], sort_keys=True))


@lru_cache(maxsize=256)
def _workload(tables_json: str) -> WorkloadInfo:
    """Cached, because a model must be built before its parameters can be counted."""
    task, train = json.loads(tables_json)
    model = task.get("model")
    if model is None:
        return info(task, train)
    try:
        return call(f"workload.model: {model!r}", info, task, train)
    except (WorkloadError, OwnCodeError):
        raise
    except ValueError as error:  # LearnerError, whose module would import torch here
        raise OwnCodeError(str(error)) from None
