"""What was measured at each commit, from run folders or from the versions of a baseline in git."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline, exact
from wanbench.harness.gate.git import Commit, commit, versions
from wanbench.harness.gate.names import by_name, has
from wanbench.harness.results import planned
from wanbench.harness.results.columns import MEASURES
from wanbench.harness.results.outcome import CellOutcome, Outcome
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.grid import some
from wanbench.netprofiles.errors import did_you_mean

METRICS = (*MEASURES, *exact.COUNTS, exact.WIRE)
Row = Mapping[str, Any]
Say = Callable[[str], None]

_DIRTY = "-dirty"
_LISTED = 5  # cells in an error


def of_runs(folders: Sequence[RunFolder]) -> list[Outcome]:
    """One outcome per run folder, in this order. Raises: SpecError: their experiments differ."""
    found = [of_run(folder) for folder in folders]
    for folder, outcome in zip(folders, found, strict=True):
        if outcome.experiment != found[0].experiment:
            raise SpecError(
                f"{folder.path}: a run of {outcome.experiment!r}, and {folders[0].path} is one of "
                f"{found[0].experiment!r}; give runs of one experiment"
            )
    return found


def of_run(folder: RunFolder, *, earlier: bool = False) -> Outcome:
    """The outcome of a run folder. Its commit is that of the folder in which it ran, if git knows it here.

    Args:
        earlier: include cells that the last plan left out, as a gate does that measures some cells further.

    Raises:
        SpecError: its manifest or its rows are damaged.
    """
    stored = folder.read()
    rows = [*stored.rows, *(stored.earlier if earlier else ())]
    try:
        manifest = folder.manifest()
        text = str(manifest.get("project") or manifest.get("git") or "")
        found = commit(text.removesuffix(_DIRTY)) if text else None
        known = manifest.get("versions", {})
        return Outcome(
            experiment=_experiment(folder),
            commit=found and found.hash,
            date=found and found.date,
            subject=found and found.subject,
            dirty=text.endswith(_DIRTY),
            wanbench=known.get("wanbench"),
            torch=known.get("torch"),
            processor=manifest.get("cpu"),
            kernel=manifest.get("kernel"),
            cells={name: _cell(group) for name, group in by_name(rows).items()},
        )
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise SpecError(f"{folder.path}: not a run that can be followed: {_reason(error)}") from None


def _experiment(folder: RunFolder) -> str:
    try:
        return str(planned.read(folder.path).spec.get("name", folder.name))
    except SpecError:
        return folder.name


def _cell(rows: Sequence[Row]) -> CellOutcome:
    """Medians of the valid repetitions of one cell, with their minimum and maximum."""
    valid, last = [row for row in rows if exact.why_failed(row) is None], rows[-1]
    metrics = {}
    for name in METRICS:
        values = [exact.wire_bytes_per_step(row) if name == exact.WIRE else row.get(name) for row in valid]
        known = [float(value) for value in values if value is not None]
        if known:
            metrics[name] = [statistics.median(known), min(known), max(known)] if len(known) > 1 else known
    return CellOutcome(
        cell=last["cell_key"],
        testbed=last["testbed"],
        emulator=last.get("emulator"),
        code=last.get("code"),
        repeats=len(valid),
        metrics=metrics,
    )


def of_baseline(path: Path, revisions: str | None, say: Say) -> list[Outcome]:
    """One outcome per committed version of a baseline, oldest first. Those that cannot be read are said and skipped.

    Args:
        revisions: a range of commits; None: all up to HEAD.

    Raises:
        SpecError: no version can be read, or as `git.versions`. HostError: git is not installed.
    """
    found, shallow = versions(path, revisions)
    if shallow:
        say(f"{path}: earlier versions may be missing from this shallow clone; `git fetch --unshallow` fetches them")
    outcomes = []
    for each, text in found:
        try:
            outcomes.append(_of_version(each, text))
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            say(f"{path} at {each.hash[:9]}: not a baseline, so left out: {_reason(error)}")
    if not outcomes:
        raise SpecError(f"{path}: no version of it is a baseline; write one with `wanbench check --baseline --accept`")
    kept = [each for each in outcomes if each.experiment == outcomes[-1].experiment]
    if len(kept) < len(outcomes):
        say(f"{path}: {len(outcomes) - len(kept)} versions of other experiments than {kept[0].experiment} are left out")
    return kept


def _of_version(at: Commit, text: str) -> Outcome:
    data = json.loads(text)
    cells = {}
    for name, entry in data["cells"].items():
        metrics = {key: [float(entry[key])] for key in exact.COMPARED if key in entry}
        cells[str(name)] = CellOutcome(
            cell=entry.get("cell"), testbed=entry["testbed"], emulator=entry.get("emulator"), metrics=metrics
        )
    return Outcome(
        experiment=data["experiment"],
        commit=at.hash,
        date=at.date,
        subject=at.subject,
        wanbench=data.get("wanbench"),
        cells=cells,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return baseline.in_words(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def select(outcomes: Sequence[Outcome], metric: str, wanted: Mapping[str, Collection[str]]) -> list[Outcome]:
    """The outcomes with only the cells that have one of the wanted values of each axis.

    Args:
        metric: one that some of these cells must have.

    Raises:
        SpecError: no cell is left, or none has the metric.
    """
    kept = [
        each.model_copy(update={"cells": {name: cell for name, cell in each.cells.items() if _wanted(name, wanted)}})
        for each in outcomes
    ]
    if not any(each.cells for each in kept):
        given = " ".join(f"--only {axis}={value}" for axis, values in wanted.items() for value in sorted(values))
        names = sorted({name for each in outcomes for name in each.cells})
        raise SpecError(f"{given or 'history'}: no cell is left; cells: {some(names, _LISTED) or 'none'}")
    known = sorted({name for each in kept for name in each.metrics})
    if metric not in known:
        near = did_you_mean(metric, known, f"expected one of: {', '.join(known) or 'none'}")
        raise SpecError(f"--metric {metric}: no cell has it in any of {len(kept)} outcomes{near}")
    return kept


def _wanted(cell: str, wanted: Mapping[str, Collection[str]]) -> bool:
    return all(any(has(cell, axis, value) for value in values) for axis, values in wanted.items())
