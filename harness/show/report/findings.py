"""What speaks against a run: broken rules, how faithful the emulation was, failures with the end of their logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.harness.results import planned
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import RULES, Objection, meaning, objections
from wanbench.harness.show.report.plain import Row, relative

_TAIL_LINES = 30


@dataclass(frozen=True)
class RuleOutcome:
    """A rule of `verify`: what it asks for, and what breaks it (text, cells)."""

    rule: str
    meaning: str
    broken: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Failure:
    """A repetition without a valid result."""

    cell: str
    rep: int
    status: str
    reason: str
    tail: str
    link: str | None


def objections_to(folder: RunFolder, rows: Sequence[Row]) -> tuple[list[Objection], str | None]:
    """By the rules of `verify`, and why they could not be applied, if so."""
    try:
        return objections(rows, planned.read(folder.path).names), None
    except SpecError as error:
        known = {row["cell_key"]: row["cell"] for row in rows}
        try:
            return objections(rows, known), " ".join(str(error).replace(f"{folder.path}/", "").split())
        except (KeyError, TypeError, ValueError) as unjudged:
            return [], f"the rules cannot be applied to these rows ({type(unjudged).__name__}: {unjudged})"
    except (KeyError, TypeError, ValueError) as error:
        return [], f"the rules cannot be applied to these rows ({type(error).__name__}: {error})"


def findings_of(broken: Sequence[Objection]) -> tuple[RuleOutcome, ...]:
    """Every rule, with what breaks it."""
    findings = []
    for rule in RULES:
        texts: dict[str, list[str]] = {}
        for one in broken:
            if one.rule == rule:
                texts.setdefault(one.text, []).append(one.cell or "the whole run")
        findings.append(RuleOutcome(rule, meaning(rule), tuple((text, tuple(where)) for text, where in texts.items())))
    return tuple(findings)


def fidelity_of(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """The worst of what the valid repetitions say of the emulation."""
    ok = [row for row in rows if row["status"] == "ok" and row["workers"] != 1]
    if not ok:
        return ()
    simulated = sum(row["testbed"] == "virtual" for row in ok)
    facts = [("repetitions on a simulated network", f"{simulated} of {len(ok)}")] if simulated else []
    named = (
        ("one_way_error_ms", "largest error of a one-way delay on the idle network", "ms"),
        ("lateness_p99_ms", "latest packets, 99th percentile", "ms"),
        ("overdue_pct", "time during which packets were overdue", "%"),
        ("host_cpu_pct", "processor use of this host", "%"),
        ("retransmits", "segments that TCP sent again", ""),
    )
    for name, text, unit in named:
        values = [row[name] for row in ok if isinstance(row.get(name), int | float)]
        if values:
            middle = sorted(values)[len(values) // 2]
            facts.append(
                (text, f"{max(values):.3g} {unit} at worst, {middle:.3g} {unit} in the middle".replace("  ", " "))
            )
    return tuple(facts)


def failure_of(folder: RunFolder, row: Row, path: Path) -> Failure:
    """A repetition that failed or is invalid, with the last try's log."""
    tail, link = "", None
    kept = sorted(folder.path.glob(f"cells/{_literal(row['cell'])}/rep-{row['rep']}.failed-*/error.json"))
    if kept:
        link = relative(kept[-1].parent, path)
        try:
            found = json.loads(kept[-1].read_text(encoding="utf-8")).get("log_tail", [])
            tail = "\n".join(str(line) for line in found[-_TAIL_LINES:])
        except (OSError, ValueError, AttributeError, TypeError):
            tail = "(the log cannot be read)"
    return Failure(str(row["cell"]), row["rep"], row["status"], row["reason"] or "no reason is recorded", tail, link)


def _literal(name: str) -> str:
    from glob import escape

    return escape(name)


def environment_of(folder: RunFolder) -> tuple[tuple[str, str], ...]:
    """The manifest, flat."""
    try:
        manifest = folder.manifest()
        items = [(str(key), value) for key, value in manifest.items()]
    except (OSError, ValueError, AttributeError):
        return (("manifest.json", "cannot be read"),)
    flat = []
    for key, value in items:
        if isinstance(value, Mapping):
            flat += [(f"{key}: {name}", str(one)) for name, one in value.items()]
        elif isinstance(value, list):
            flat.append((key, " ".join(str(one) for one in value)))
        else:
            flat.append((key, "unknown" if value is None else str(value)))
    return tuple(flat)
