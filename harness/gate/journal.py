"""The file of `check --append`: one line of JSON for each check, the oldest first.

A line has the commit, the versions and the host that measured, the worst verdict, and for each cell its verdict and its
metrics by name of column: [value], or [median, minimum, maximum] of several repetitions. What is not known is left out.
"""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wanbench.harness.errors import HostError, SpecError, in_words, printable, writing
from wanbench.harness.gate import exact
from wanbench.harness.gate.verdict import Report, by_name
from wanbench.harness.process.git import git
from wanbench.harness.results.columns import MEASURES
from wanbench.harness.results.store import RunFolder

_SCHEMA = 1
_DIRTY = "-dirty"
_LONGEST = 200  # characters of the subject of a commit


def refuse_other(path: Path, experiment: str) -> None:
    """Refuse a file of another experiment, before anything is measured. Raises: SpecError, HostError."""
    if not path.exists():
        return
    last = _last_experiment(path)
    if last is not None and last != experiment:
        raise SpecError(
            f"--append {path}: has outcomes of {last!r}, not of {experiment!r}; use one file for each experiment"
        )


def _last_experiment(path: Path) -> str | None:
    """The experiment of the last line that can be read. Raises: HostError: the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HostError(f"{path}: cannot be read ({in_words(error)})") from None
    for line in reversed(text.split("\n")):
        with suppress(ValueError, RecursionError, LookupError, TypeError):
            return str(json.loads(line)["experiment"])
    return None


def measured(report: Report) -> RunFolder | None:
    """The run of the checked side; None if nothing was measured."""
    folder = report.files.get("head") or report.files.get("results")
    return None if folder is None else RunFolder(Path(folder))


def append(path: Path, report: Report) -> bool:
    """Append the outcome of a check; False if it measured nothing. Raises: HostError.

    The line is one write. One that was cut short, as by a full disk, is ended first, so that it spoils no other.
    """
    folder = measured(report)
    if folder is None:
        return False
    line = f"{json.dumps(_outcome(folder, report), separators=(',', ':'))}\n".encode()
    with writing(path, "the outcome"), path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        os.write(file.fileno(), line)
        os.fsync(file.fileno())
    return True


def _outcome(folder: RunFolder, report: Report) -> dict[str, Any]:
    """What was measured, and how it was judged.

    It includes cells that the last plan left out, because a gate measures some cells further.
    """
    stored, manifest = folder.read(), folder.manifest()
    revision = str(manifest.get("project") or manifest.get("git") or "")
    verdicts = {finding.cell: str(finding.verdict) for finding in report.cells}
    return _present(
        schema=_SCHEMA,
        experiment=report.experiment,
        **commit_of(revision.removesuffix(_DIRTY)),
        dirty=revision.endswith(_DIRTY),
        verdict=str(report.findings[0].verdict) if report.findings else None,
        wanbench=manifest.get("versions", {}).get("wanbench"),
        torch=manifest.get("versions", {}).get("torch"),
        processor=manifest.get("cpu"),
        kernel=manifest.get("kernel"),
        cells={
            name: _cell(rows, verdicts.get(name)) for name, rows in by_name([*stored.rows, *stored.earlier]).items()
        },
    )


def commit_of(revision: str) -> dict[str, str]:
    """Hash, date (ISO 8601) and first line of a commit; empty if it is not known here, or without git."""
    if not revision or revision.startswith("-"):
        return {}
    try:
        line = git("log", "-1", "--no-show-signature", "--format=%H%x00%cI%x00%s", revision, "--")
    except (HostError, OSError):
        return {}
    commit, date, subject = line.split("\0", 2)
    return {"commit": commit, "subject": printable(subject[:_LONGEST]), "date": date}


def _cell(rows: Sequence[Mapping[str, Any]], verdict: str | None) -> dict[str, Any]:
    """What a line says of one cell."""
    last = rows[-1]
    return _present(
        cell=last["cell_key"],
        testbed=last["testbed"],
        emulator=last.get("emulator"),
        code=last.get("code"),
        repeats=sum(exact.why_failed(row) is None for row in rows),
        verdict=verdict,
        metrics=metrics_of(rows),
    )


def metrics_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By column, the value of the only valid repetition of a cell, or their median, minimum and maximum."""
    valid, metrics = [row for row in rows if exact.why_failed(row) is None], {}
    for name in (*MEASURES, *exact.COUNTS, exact.WIRE):
        values = [exact.wire_bytes_per_step(row) if name == exact.WIRE else row.get(name) for row in valid]
        numbers = [float(value) for value in values if value is not None]
        if numbers:
            metrics[name] = [statistics.median(numbers), min(numbers), max(numbers)] if len(numbers) > 1 else numbers
    return metrics


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
