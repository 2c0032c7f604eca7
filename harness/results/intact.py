"""Whether the files of a run are as they were written, and say what its rows say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wanbench.harness.results import digests
from wanbench.harness.results.evidence import window_begin
from wanbench.harness.results.steps import elapsed_per_step_s, step_time_s
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import Objection

RULE = "intact"
MEANING = "All files are as they were written: proof against accidents, not against a liar."
_STEPS = "steps.parquet"
_ROUNDING = 1e-6

Row = Mapping[str, Any]


def objections(folder: RunFolder) -> list[Objection]:
    """The files that were changed later, are damaged or missing, or contradict their row."""
    rows = folder.results()
    found = list(digests.changed(folder.path, rows))
    named = {one.path for one in found}
    texts = [(one.path, f"{one.path.name} {one.text}") for one in found]
    texts += [
        (path, text)
        for path, row in rows.items()
        if path.with_name(_STEPS) not in named
        for text in _contradicted(folder.path / path.with_name(_STEPS), row)
    ]
    return [Objection(RULE, _cell(path), f"{_rep(path)}{text}") for path, text in texts]


def unknown(folder: RunFolder) -> str | None:
    """Why nothing, or not everything, is known about the files of a run; None if all have digests."""
    noted = digests.noted(folder.path)
    if noted is None:
        return f"no {digests.FILE}: measured or recorded by an earlier version, so later changes are not seen"
    without = [path for path in folder.results() if path.as_posix() not in noted]
    if without:
        some = "1 repetition has" if len(without) == 1 else f"{len(without)} repetitions have"
        return f"{some} no digest, so later changes there are not seen"
    return None


def _contradicted(file: Path, row: Row) -> Iterator[str]:
    """Yield how the steps differ from the row. Rows of earlier versions, which name no digests, are not judged."""
    evidence = row.get("evidence")
    if evidence is None or not row.get("steps"):
        return
    if _STEPS not in evidence:
        yield f"{_STEPS} is missing, so nothing shows that these {row['steps']} steps were measured"
        return
    try:
        known = _known(file, row)
    except (OSError, ValueError, KeyError, TypeError):
        return  # the digest shows the damage
    if known is None:
        yield f"{_STEPS} lacks the {row['steps']} measured steps"
    elif not math.isclose(known, row["step_time_s"], rel_tol=_ROUNDING):
        yield f"the step time is {row['step_time_s']:.6g} s, but {known:.6g} s by {_STEPS}"


def _known(file: Path, row: Row) -> float | None:
    if row.get("command"):
        return step_time_s(file, row["steps_total"] - row["steps"], 0)
    if row.get("counted_steps") is not None:
        return elapsed_per_step_s(file, row["steps"])
    return step_time_s(file, window_begin(row), row["steps"])


def _cell(path: Path) -> str | None:
    return path.parts[1] if path.parts[0] == "cells" and len(path.parts) > 1 else None


def _rep(path: Path) -> str:
    """The repetition of a file, as a beginning of a sentence."""
    return f"rep {path.parent.name.removeprefix('rep-')}: " if _cell(path) is not None else ""
