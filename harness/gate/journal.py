"""The file of `check --append`: one line of JSON for each check, the oldest first."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wanbench.harness.errors import HostError, SpecError, in_words, writing
from wanbench.harness.gate import baseline, exact
from wanbench.harness.gate.verdict import Report, by_name
from wanbench.harness.process.git import git
from wanbench.harness.results import planned
from wanbench.harness.results.columns import MEASURES
from wanbench.harness.results.outcome import CellOutcome, Outcome
from wanbench.harness.results.store import RunFolder

_DIRTY = "-dirty"
_LONGEST = 200  # characters of the subject of a commit


def refuse_other(path: Path, experiment: str) -> None:
    """Refuse a file of another experiment, before anything is measured. Raises: SpecError, HostError."""
    if not path.exists():
        return
    outcomes = _outcomes(path)
    if outcomes and outcomes[-1].experiment != experiment:
        raise SpecError(
            f"--append {path}: has outcomes of {outcomes[-1].experiment!r}, not of {experiment!r}; "
            "use one file for each experiment"
        )


def append(path: Path, report: Report) -> bool:
    """Append the outcome of a check; False if it measured nothing. Raises: HostError.

    The line is one write. One that was cut short, as by a full disk, is ended first, so that it spoils no other.
    """
    measured = report.files.get("head") or report.files.get("results")
    if measured is None:
        return False
    line = f"{_judged(_of_run(RunFolder(Path(measured))), report)}\n".encode()
    with writing(path, "the outcome"), path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        os.write(file.fileno(), line)
        os.fsync(file.fileno())
    return True


def _judged(outcome: Outcome, report: Report) -> str:
    verdicts = {finding.cell: str(finding.verdict) for finding in report.cells}
    cells = {name: cell.model_copy(update={"verdict": verdicts.get(name)}) for name, cell in outcome.cells.items()}
    worst = str(report.findings[0].verdict) if report.findings else None
    return outcome.model_copy(update={"verdict": worst, "cells": cells}).model_dump_json(
        by_alias=True, exclude_none=True
    )


def _of_run(folder: RunFolder) -> Outcome:
    """The outcome of a run folder. Its commit is that of the folder in which it ran, if git knows it here.

    It includes cells that the last plan left out, because a gate measures some cells further.

    Raises:
        SpecError: its manifest or its rows are damaged.
    """
    stored = folder.read()
    rows = [*stored.rows, *stored.earlier]
    try:
        manifest = folder.manifest()
        text = str(manifest.get("project") or manifest.get("git") or "")
        versions = manifest.get("versions", {})
        return Outcome(
            experiment=_experiment(folder),
            **_commit(text.removesuffix(_DIRTY)),
            dirty=text.endswith(_DIRTY),
            wanbench=versions.get("wanbench"),
            torch=versions.get("torch"),
            processor=manifest.get("cpu"),
            kernel=manifest.get("kernel"),
            cells={name: _cell(group) for name, group in by_name(rows).items()},
        )
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise SpecError(f"{folder.path}: not a run that can be followed: {_reason(error)}") from None


def _commit(revision: str) -> dict[str, Any]:
    """Hash, date (ISO 8601) and first line of a commit; empty if it is not known here, or without git."""
    if not revision or revision.startswith("-"):
        return {}
    try:
        line = git("log", "-1", "--no-show-signature", "--format=%H%x00%cI%x00%s", revision, "--")
    except (HostError, OSError):
        return {}
    name, date, subject = line.split("\0", 2)
    return {"commit": name, "date": date, "subject": subject[:_LONGEST]}


def _experiment(folder: RunFolder) -> str:
    try:
        return str(planned.read(folder.path).spec.get("name", folder.name))
    except SpecError:
        return folder.name


def _cell(rows: Sequence[Mapping[str, Any]]) -> CellOutcome:
    """Medians of the valid repetitions of one cell, with their minimum and maximum."""
    valid, last = [row for row in rows if exact.why_failed(row) is None], rows[-1]
    metrics = {}
    for name in (*MEASURES, *exact.COUNTS, exact.WIRE):
        values = [exact.wire_bytes_per_step(row) if name == exact.WIRE else row.get(name) for row in valid]
        numbers = [float(value) for value in values if value is not None]
        if numbers:
            metrics[name] = [statistics.median(numbers), min(numbers), max(numbers)] if len(numbers) > 1 else numbers
    return CellOutcome(
        cell=last["cell_key"],
        testbed=last["testbed"],
        emulator=last.get("emulator"),
        code=last.get("code"),
        repeats=len(valid),
        metrics=metrics,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return baseline.in_words(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _outcomes(path: Path) -> list[Outcome]:
    """The outcomes of a file, without lines that cannot be read. Raises: HostError: the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HostError(f"{path}: cannot be read ({in_words(error)})") from None
    outcomes = []
    for line in text.split("\n"):
        with suppress(ValidationError):
            outcomes.append(Outcome.model_validate_json(line))
    return outcomes
