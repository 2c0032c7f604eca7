"""Results in the formats of services that watch benchmarks: Bencher, github-action-benchmark, and asv.

Each cell is a benchmark: its step time in milliseconds, the median over the valid repetitions with its minimum and
maximum, and for Bencher its scalability and accuracy if they are known; to the others, smaller is always better. Cells
without a valid repetition have no value, and results of hosts that differ are refused.

Sources: Bencher Metric Format (bencher.dev/docs/reference/bencher-metric-format); the tool customSmallerIsBetter of
github.com/benchmark-action/github-action-benchmark; asv 0.6, files of version 2.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError, writing
from wanbench.harness.gate.journal import commit_of, metrics_of
from wanbench.harness.gate.verdict import by_name
from wanbench.harness.results.columns import Row
from wanbench.harness.results.disk import write_json, write_text
from wanbench.harness.results.hosts import hosts_of
from wanbench.harness.results.store import RunFolder

# (column, name of the measure, factor): ms, a share, and %.
_MEASURES = (("step_time_s", "step-time", 1e3), ("scalability", "scalability", 1.0), ("accuracy", "accuracy", 100.0))
Values = Mapping[str, Mapping[str, tuple[float, ...]]]  # cell -> measure -> median, and minimum and maximum of several


def values(rows: Iterable[Row]) -> Values:
    """The measures of every cell with a valid repetition, by the names that `check` gives to cells.

    Raises:
        SpecError: hosts that measured the rows differ.
    """
    rows = list(rows)
    if problem := hosts_of(rows).problem:
        raise SpecError(f"{problem}; a service compares results of one machine")
    known = {cell: metrics_of(of_cell) for cell, of_cell in by_name(rows).items()}
    return {cell: dict(_measures(metrics)) for cell, metrics in known.items() if metrics}


def _measures(metrics: Mapping[str, Iterable[float]]) -> Iterator[tuple[str, tuple[float, ...]]]:
    for column, name, factor in _MEASURES:
        if column in metrics:
            yield name, tuple(factor * value for value in metrics[column])


def write(form: str, folder: RunFolder, file: Path) -> None:
    """Write what was measured, also in repetitions beyond the last plan. Raises: SpecError, HostError."""
    stored = folder.read()
    rows = [*stored.rows, *stored.earlier]
    with writing(file, "the metrics"):
        if form == "asv":
            write_asv(rows, folder.manifest(), file)
        else:
            write_text(file, as_bencher(rows) if form == "bencher" else as_github(rows))


def as_bencher(rows: Iterable[Row]) -> str:
    """Bencher Metric Format: measures by benchmark."""
    names = ("value", "lower_value", "upper_value")
    metrics = {
        cell: {measure: dict(zip(names, value, strict=False)) for measure, value in of_cell.items()}
        for cell, of_cell in values(rows).items()
    }
    return json.dumps(metrics, indent=1) + "\n"


def as_github(rows: Iterable[Row]) -> str:
    """The list of github-action-benchmark's customSmallerIsBetter: step times."""
    entries = []
    for cell, of_cell in values(rows).items():
        middle, *ends = of_cell["step-time"]
        span = {"range": " to ".join(f"{end:.6g}" for end in ends)} if ends else {}
        entries.append({"name": cell, "unit": "ms", "value": middle, **span})
    return json.dumps(entries, indent=1) + "\n"


def write_asv(rows: Iterable[Row], manifest: Mapping[str, Any], folder: Path) -> Path:
    """Write a results folder of asv: benchmarks.json, and below the machine machine.json and the file of the commit.

    Args:
        manifest: of the run, with the commit of the user's project or, without one, of wanbench.

    Raises:
        SpecError: the run has no commit that is known here, or ran files that were not committed.
    """
    commit, date_ms = _commit(str(manifest.get("project") or manifest.get("git") or ""))
    rows = list(rows)
    machine = next((str(row["host"]) for row in rows if row.get("host")), "unknown")
    results = {cell.replace("/", "_"): of_cell["step-time"][0] for cell, of_cell in values(rows).items()}
    benchmarks = {
        name: {"name": name, "code": "", "param_names": [], "params": [], "type": "track", "unit": "ms", "version": "1"}
        for name in results
    }
    about = {"machine": machine, "cpu": str(manifest.get("cpu", "")), "os": str(manifest.get("kernel", ""))}
    (folder / machine).mkdir(parents=True, exist_ok=True)
    write_json(folder / "benchmarks.json", benchmarks | {"version": 2})
    write_json(folder / machine / "machine.json", about | {"version": 1})
    file = folder / machine / f"{commit[:8]}-wanbench.json"
    python = str(manifest.get("python", ""))
    stored = {
        "version": 2, "commit_hash": commit, "date": date_ms, "env_name": "wanbench", "env_vars": {}, "python": python,
        "params": about | {"python": python}, "requirements": {}, "durations": {},
        "result_columns": ["result", "params", "version"],
        "results": {name: [[value], [], "1"] for name, value in results.items()},
    }  # fmt: skip
    write_json(file, stored)
    return file


def _commit(revision: str) -> tuple[str, int]:
    """The full hash of a revision, and its date in milliseconds. Raises: SpecError."""
    if revision.endswith("-dirty"):
        raise SpecError(
            f"asv: files a result under its commit, but {revision} has changes; commit them, and measure again"
        )
    commit = commit_of(revision)
    if not commit:
        raise SpecError(
            f"asv: files a result under its commit, and that of this run ({revision or 'none'}) is not known here; "
            "measure in a git repository, and call this there"
        )
    return commit["commit"], int(1e3 * datetime.fromisoformat(commit["date"]).timestamp())
