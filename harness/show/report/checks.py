"""The checks on the page of a run: the rules of `verify`, the fidelity of the emulation, and failures with logs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.summary import Row
from wanbench.harness.errors import SpecError
from wanbench.harness.results import planned
from wanbench.harness.results.rules import RULES
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import CHECKS, Objection, objections, problems_text

_TAIL_LINES = 30


def verdict_of(rows: Sequence[Row], broken: Sequence[Objection], unjudged: str | None) -> tuple[str, str]:
    """publishable, objections or nothing, and a sentence."""
    if not any(row["status"] == "ok" for row in rows):
        return "nothing", "No repetition is valid, so there is nothing to compare." if rows else "No results yet."
    if unjudged:
        return "objections", "The checks could not run: do not publish yet. See “Files that could not be read”."
    if broken:
        rules = ", ".join(dict.fromkeys(objection.rule for objection in broken))
        return "objections", f"{problems_text(broken)} ({rules})."
    simulated = all(row["testbed"] == "virtual" for row in rows)
    return "publishable", f"All checks passed{' (simulated results)' if simulated else ''}."


def objections_to(folder: RunFolder, rows: Sequence[Row]) -> tuple[list[Objection], str | None]:
    """The problems by the rules of `verify`, and the reason if the rules could not be applied."""
    try:
        names, why = planned.read(folder.path).names, None
    except SpecError as error:
        names = {row["cell_key"]: row["cell"] for row in rows}
        why = " ".join(str(error).replace(f"{folder.path}/", "").split())
    try:
        return objections(rows, names), why
    except (KeyError, TypeError, ValueError) as error:
        return [], f"rows: the checks cannot be applied ({type(error).__name__}: {error}); run the experiment again"


def outcomes(broken: Sequence[Objection]) -> list[dict[str, Any]]:
    """Every rule of `verify` with its requirement, and its problems as (text, cells)."""
    texts: dict[str, dict[str, list[str]]] = {rule: {} for rule in CHECKS}
    for objection in broken:
        texts[objection.rule].setdefault(objection.text, []).append(objection.cell or "the whole run")
    return [{"rule": rule, "meaning": RULES[rule], "broken": list(by_text.items())} for rule, by_text in texts.items()]


def fidelity_of(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """The maximum and the median of the quality indicators of the valid repetitions."""
    ok = [row for row in rows if row["status"] == "ok" and row["workers"] != 1]
    if not ok:
        return ()
    simulated = sum(row["testbed"] == "virtual" for row in ok)
    facts = [("repetitions on a simulated network", f"{simulated} of {len(ok)}")] if simulated else []
    named = (
        ("one_way_error_ms", "error of one-way delays on the idle network", "ms"),
        ("lateness_p99_ms", "lateness of packets, 99th percentile", "ms"),
        ("overdue_pct", "time with overdue packets", "%"),
        ("host_cpu_pct", "processor use of the host", "%"),
        ("retransmits", "TCP segments sent again", ""),
        ("tcp_window_change_pct", "change of TCP's windows while measuring", "%"),
    )
    for name, text, unit in named:
        values = [row[name] for row in ok if isinstance(row.get(name), int | float)]
        if values:
            largest, median = (f"{value:z.3g} {unit}".rstrip() for value in (max(values), statistics.median(values)))
            facts.append((text, f"maximum {largest}, median {median}"))
    return tuple(facts)


def failure_of(folder: RunFolder, row: Row, link_to: Callable[[Path], str]) -> dict[str, Any]:
    """A repetition that failed or is invalid, with the end of its last log."""
    tail, link = "", None
    kept = sorted(folder.path.glob(f"cells/{escape(row['cell'])}/rep-{row['rep']}.failed-*/error.json"))
    if kept:
        link = link_to(kept[-1].parent)
        try:
            log_tail = json.loads(kept[-1].read_text(encoding="utf-8")).get("log_tail", [])
            tail = "\n".join(str(line) for line in log_tail[-_TAIL_LINES:])
        except (OSError, ValueError, AttributeError, TypeError):
            tail = "(the log cannot be read)"
    reason = row["reason"] or "no reason was recorded"
    of_row = {name: row[name] for name in ("cell", "rep", "status")}
    return {**of_row, "reason": reason, "tail": tail, "link": link}


def environment_of(folder: RunFolder) -> tuple[tuple[str, str], ...]:
    """The manifest as pairs of name and value."""
    try:
        items = [*folder.manifest().items()]
    except (OSError, ValueError, AttributeError):
        return (("manifest.json", "cannot be read"),)
    pairs = []
    for key, value in items:
        if isinstance(value, Mapping):
            pairs += [(f"{key}: {name}", str(item)) for name, item in value.items()]
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else "unknown" if value is None else str(value)
            pairs.append((str(key), text))
    return tuple(pairs)
