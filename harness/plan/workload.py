"""The workload of a cell: what a plan knows of it, and its part of the cell's identity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.harness.plan import known
from wanbench.harness.spec.tables import TrainTable, WorkloadTable
from wanbench.netprofiles import Delay, UnitError
from wanbench.workloads.data.errors import WorkloadError
from wanbench.workloads.registry import WorkloadInfo


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
    return known.workload(task, train)
