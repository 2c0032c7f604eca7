"""The file of `check --append`: one line of JSON for each check, the oldest first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from wanbench.harness.errors import HostError, SpecError, in_words, writing
from wanbench.harness.gate import baseline
from wanbench.harness.gate.outcomes import of_run
from wanbench.harness.gate.verdict import Report
from wanbench.harness.results.outcome import Outcome
from wanbench.harness.results.store import RunFolder


def refuse_other(path: Path, experiment: str) -> None:
    """Refuse a file of another experiment, before anything is measured. Raises: SpecError, HostError."""
    if not path.exists():
        return
    found = [each for _, each in _lines(path, lambda _: None)]
    if found and found[-1].experiment != experiment:
        raise SpecError(
            f"--append {path}: has outcomes of {found[-1].experiment!r}, not of {experiment!r}; "
            "use one file for each experiment"
        )


def append(path: Path, report: Report) -> bool:
    """Append the outcome of a check; False if it measured nothing. Raises: HostError.

    The line is one write. One that was cut short, as by a full disk, is ended first, so that it spoils no other.
    """
    measured = report.files.get("head") or report.files.get("results")
    if measured is None:
        return False
    line = f"{_judged(of_run(RunFolder(Path(measured)), earlier=True), report)}\n".encode()
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
    worst = report.findings[0].verdict if report.findings else None
    known = {"verdict": worst and str(worst), "cells": cells}
    return outcome.model_copy(update=known).model_dump_json(by_alias=True, exclude_none=True)


def read(path: Path, say: Callable[[str], None]) -> list[Outcome]:
    """The outcomes of a file. Lines that cannot be read are said and skipped.

    Raises:
        SpecError: there is none, or they are of different experiments. HostError: the file cannot be read.
    """
    found = list(_lines(path, say))
    if not found:
        raise SpecError(f"{path}: no outcome in it; `wanbench check ... --append {shlex.quote(str(path))}` writes one")
    first = found[0][1].experiment
    for number, outcome in found:
        if outcome.experiment != first:
            raise SpecError(
                f"{path} line {number}: of {outcome.experiment!r}, and earlier lines are of {first!r}; "
                "use one file for each experiment"
            )
    return [outcome for _, outcome in found]


def _lines(path: Path, say: Callable[[str], None]) -> list[tuple[int, Outcome]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HostError(f"{path}: cannot be read ({in_words(error)})") from None
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, Outcome.model_validate_json(line)))
        except ValidationError as error:
            say(f"{path} line {number}: not an outcome, so left out: {baseline.in_words(error)}")
    return found
