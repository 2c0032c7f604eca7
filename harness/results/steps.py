"""Step rows in columns, because a million dicts would take a gigabyte."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wanbench.workloads.loop.job import StepRow

_INTEGERS = ("rank", "step", "end_ns", "payload_bytes", "messages_sent")


def step_time_s(path: Path, first: int, steps: int) -> float | None:
    """The step time that a file of step rows gives: the duration of the window / steps, of the slowest worker.

    Args:
        first: the first measured step. steps: their number; 0 for all that follow, as of programs whose processes take
            different numbers of steps.

    Returns:
        None if the file lacks these steps.

    Raises:
        OSError, ValueError, KeyError: it cannot be read.
    """
    ranks, numbers, ends_ns, times_s = _columns(path, ("rank", "step", "end_ns", "step_time_s"))
    order = np.lexsort((numbers, ranks))
    of_ranks = []
    for rows in np.split(order, np.flatnonzero(np.diff(ranks[order])) + 1):
        ends = ends_ns[rows]
        last = first + steps if steps else len(ends)
        if not last - first > 0 or last > len(ends):
            continue
        # Not the end of the step before: on real sockets, TCP's windows are read between the two.
        begin_ns = ends[first] - times_s[rows[first]] * 1e9
        of_ranks.append(float(ends[last - 1] - begin_ns) / 1e9 / (last - first))
    return max(of_ranks, default=None)


def elapsed_per_step_s(path: Path, steps: int) -> float:
    """The time from the first begin to the last end of a step of any worker / steps, for workers that can be lost.

    Raises:
        OSError, ValueError, KeyError: the file cannot be read.
    """
    ends_ns, times_s = _columns(path, ("end_ns", "step_time_s"))
    return float(np.nanmax(ends_ns) - np.nanmin(ends_ns - times_s * 1e9)) / 1e9 / steps


def _columns(path: Path, names: Sequence[str]) -> list[np.ndarray[Any, Any]]:
    """Columns of a Parquet file: without pandas in a seventh of the time, because `verify` reads thousands of files."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table = file.read(columns=list(names), use_threads=False)
    return [table.column(name).to_numpy() for name in names]


@dataclass(frozen=True)
class ProgramStep:
    """One step of a process of a program. How long its first step took is not known."""

    rank: int
    step: int
    end_ns: int
    step_time_s: float | None


class Steps:
    """The rows of all workers.

    Attributes:
        first_rank: the rows of rank 0, if they are of training.
    """

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {}
        self.first_rank: list[StepRow] = []

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()), ()))

    def add(self, row: StepRow | ProgramStep) -> None:
        """Add one row. All rows have the same type."""
        values = vars(row)
        if not self._columns:
            self._columns = {name: array("q" if name in _INTEGERS else "d") for name in values}
        for name, value in values.items():
            self._columns[name].append(float("nan") if value is None else value)
        if row.rank == 0 and isinstance(row, StepRow):
            self.first_rank.append(row)

    def extend(self, rows: Iterable[StepRow | ProgramStep]) -> None:
        """Add several rows."""
        for row in rows:
            self.add(row)

    def write(self, path: Path) -> None:
        """Write one row per rank and step, as Parquet. Without rows, no file is written."""
        import pandas as pd

        if not self._columns:
            return
        columns = {name: np.frombuffer(values, values.typecode) for name, values in self._columns.items()}
        order = np.lexsort((columns["step"], columns["rank"]))
        data = {
            name: None if values.dtype == np.float64 and np.isnan(values).all() else values[order]
            for name, values in columns.items()
        }
        pd.DataFrame(data, index=range(len(order))).to_parquet(path, index=False)
