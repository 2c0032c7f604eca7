"""What the page of a run says: verdict, headline, cells, findings, failures, environment. Plain data, no markup."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.analysis import AXES, AXIS_TITLES, COLUMNS, AnalysisError, axes_of, cells, frame, records
from harness.best import Network, Standing, megabytes_per_step, networks
from harness.errors import SpecError
from harness.evidence import Evidence
from harness.expected import expected_cells
from harness.store import RECORDED, RunFolder
from harness.verify import ACCURACY_BAND, RULES, Objection, meaning, objections

_MOST_FIGURES = 16
_MOST_FAILURES = 60
_TAIL_LINES = 30

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One field of the table of cells: what is shown, and what it is sorted by."""

    text: str
    sort: float | str


@dataclass(frozen=True)
class Line:
    """One cell in the table."""

    status: str
    entries: tuple[Entry, ...]
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Best:
    """A row of the headline table."""

    where: str
    best: str
    params: str
    scalability: str
    faster: str
    accuracy: str
    megabytes: str
    also: str


@dataclass(frozen=True)
class Finding:
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


@dataclass(frozen=True)
class Drawn:
    """A figure on the page."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Content:
    """All of the page; names are those of the template."""

    run: str
    description: str
    verdict: str
    verdict_text: str
    counts: tuple[tuple[str, int], ...]
    facts: tuple[tuple[str, str], ...]
    headline: str
    best: tuple[Best, ...]
    best_note: str
    figures: tuple[Drawn, ...]
    figures_left: int
    header: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    findings: tuple[Finding, ...]
    fidelity: tuple[tuple[str, str], ...]
    unreadable: tuple[str, ...]
    failures: tuple[Failure, ...]
    failures_left: int
    environment: tuple[tuple[str, str], ...]
    spec: str | None
    raw: tuple[tuple[str, str], ...]
    results: dict[str, Any]


def content_of(folder: RunFolder, path: Path) -> Content:
    """Read a run folder for a page at `path`. Files that cannot be read are named on the page."""
    rows, unreadable = folder.read()
    rows = [{**dict.fromkeys(COLUMNS), **row, "run": folder.name} for row in rows]
    table = frame(rows)
    summary = records(cells(table)) if len(table) else []
    try:
        found = networks(rows)
    except AnalysisError:
        found = []
    broken, why_unjudged = _objections(folder, rows)
    figures, left = _figures(rows, folder)
    failures = [_failure(folder, row, path) for row in rows if row["status"] != "ok"]
    axes = _axes(table)
    spec = _text(folder.path / "spec.toml") or _text(folder.path / "spec.resolved.json")
    verdict, text = _verdict(rows, broken, why_unjudged)
    if not rows and (folder.path / "result.json").is_file():
        text = "A run of `wanbench exec`: what came of it is in result.json, the network in network.json."
    return Content(
        run=folder.name,
        description=_description(folder),
        verdict=verdict,
        verdict_text=text,
        counts=tuple((status, sum(row["status"] == status for row in rows)) for status in ("ok", "invalid", "failed")),
        facts=_facts(summary),
        headline=_headline(found),
        best=tuple(_best(network) for network in found),
        best_note=_best_note(found),
        figures=figures,
        figures_left=left,
        header=_header(axes),
        lines=tuple(_line(line, axes, rows, folder, path) for line in summary),
        findings=_findings(broken),
        fidelity=_fidelity(rows),
        unreadable=(*unreadable, *([why_unjudged] if why_unjudged else [])),
        failures=tuple(failures[:_MOST_FAILURES]),
        failures_left=max(0, len(failures) - _MOST_FAILURES),
        environment=_environment(folder),
        spec=spec,
        raw=_raw(folder, path),
        results=_results(rows),
    )


# ---------------------------------------------------------------- verdict and headline


def _objections(folder: RunFolder, rows: Sequence[Row]) -> tuple[list[Objection], str | None]:
    try:
        return objections(rows, expected_cells(folder)), None
    except SpecError as error:
        known = {row["cell_key"]: row["cell"] for row in rows}
        try:
            return objections(rows, known), str(error)
        except (KeyError, TypeError, ValueError) as unjudged:
            return [], f"the rules cannot be applied to these rows ({type(unjudged).__name__}: {unjudged})"
    except (KeyError, TypeError, ValueError) as error:
        return [], f"the rules cannot be applied to these rows ({type(error).__name__}: {error})"


def _verdict(rows: Sequence[Row], broken: Sequence[Objection], unjudged: str | None) -> tuple[str, str]:
    if not any(row["status"] == "ok" for row in rows):
        what = "Nothing was measured yet." if not rows else "No repetition is valid: there is nothing to compare."
        return "nothing", what
    if unjudged:
        return "objections", "Whether this may be published cannot be said: see what could not be read."
    if broken:
        rules = ", ".join(dict.fromkeys(one.rule for one in broken))
        count = f"{len(broken)} objection{'s' if len(broken) > 1 else ''}"
        return "objections", f"Not to be published as it is: {count} ({rules})."
    simulated = all(row["testbed"] == "virtual" for row in rows)
    what = "these numbers, as those of a simulation" if simulated else "these numbers"
    return "publishable", f"Nothing speaks against publishing {what}."


def _headline(found: Sequence[Network]) -> str:
    wins: dict[str, int] = {}
    for network in found:
        if network.best is not None:
            wins[network.best.algorithm] = wins.get(network.best.algorithm, 0) + 1
    if not wins:
        return ""
    total = sum(wins.values())
    ranked = sorted(wins.items(), key=lambda item: -item[1])
    said = ", ".join(f"{algorithm} on {count}" for algorithm, count in ranked)
    return f"Best of {total} network{'s' if total > 1 else ''}: {said}."


def _best(network: Network) -> Best:
    where = where_text(network.where)
    best = network.best
    if best is None:
        said = "nothing valid" if not network.standings else "no step time of one worker to compare with"
        return Best(where, "-", said, "-", "-", "-", "-", ", ".join(network.lost))
    reference = next((s for s in network.standings if s.kind == "ssgd"), None)
    faster = "-" if reference is None else f"{reference.step_time_s / best.step_time_s:.2f}"
    others = [s.algorithm for s in network.as_fast if s is not best]
    return Best(
        where=where,
        best=best.algorithm,
        params=", ".join(f"{k} = {_plain(v)}" for k, v in best.params.items()) or "none",
        scalability=_spread(best),
        faster=faster,
        accuracy=_accuracy(best),
        megabytes="-" if best.megabytes_per_step is None else f"{best.megabytes_per_step:.3g}",
        also=", ".join(others) or "-",
    )


def _spread(standing: Standing) -> str:
    if standing.repeats == 1:
        return f"{standing.scalability:.3f}"
    return f"{standing.scalability:.3f} ({standing.low:.3f} to {standing.high:.3f})"


def _accuracy(standing: Standing) -> str:
    if standing.accuracy is None:
        return "not measured"
    if standing.accuracy_change is None:
        return f"{100 * standing.accuracy:.2f} %, no ssgd"
    return f"{100 * standing.accuracy_change:+.2f} points"


def _best_note(found: Sequence[Network]) -> str:
    slower = sorted({s.algorithm for network in found for s in network.standings if not s.accurate})
    text = (
        "Best: the highest scalability T(1)/T(N); within a hundredth, or where repetitions overlap, algorithms count "
        "as equally fast, and the one that sends least is named. MB: payload of one worker, a step. "
    )
    if any(s.accuracy_change is not None for network in found for s in network.standings):
        text += f"Algorithms more than {100 * ACCURACY_BAND:g} points of accuracy below ssgd are left out"
        return text + (f" (somewhere: {', '.join(slower)})." if slower else " (none is).")
    return text + "Nothing is learned in this run, so what speed costs in accuracy was not measured."


def where_text(where: Mapping[str, Any]) -> str:
    """The swept axes of a network in words."""
    from harness.figures.caption import axis_value

    return ", ".join(axis_value(axis, value) for axis, value in where.items()) or "the only one"


def _facts(summary: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    lines = [line for line in summary if line["workers"] != 1]
    names = ("workload", "payload_scale", "workers", "profile", "testbed", "emulator", "collective", "tcp")
    facts = []
    for name in names:
        values = dict.fromkeys(_plain(line[name]) for line in lines if not _absent(line[name]))
        if values:
            facts.append((AXIS_TITLES.get(name, name).replace("_", " "), ", ".join(values)))
    repeats = sorted({int(line["repeats"]) for line in lines if line["repeats"]})
    if repeats:
        facts.append(("valid repeats", f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"))
    return tuple(facts)


# ---------------------------------------------------------------- figures and cells


def _figures(rows: Sequence[Row], folder: RunFolder) -> tuple[tuple[Drawn, ...], int]:
    from harness.figures.gallery import gallery
    from harness.figures.hover import inline_svg
    from harness.figures.style import PAGE_IN

    drawings = gallery(rows, folder.name, Evidence(folder))
    # With many figures those that exist once are kept: trade-off, learning, timeline, network.
    many = [d for d in drawings if d.name.startswith(("scalability", "step-time"))]
    dropped = {id(d) for d in many[max(0, _MOST_FIGURES - (len(drawings) - len(many))) :]}
    kept = [d for d in drawings if id(d) not in dropped]
    drawn = [
        Drawn(f"f{place}", d.title, inline_svg(d.draw(PAGE_IN), f"f{place}", d.title)) for place, d in enumerate(kept)
    ]
    return tuple(drawn), len(dropped)


def _axes(table: Any) -> list[str]:
    swept = axes_of(table) if len(table) and (table["workers"] != 1).any() else []
    return [axis for axis in AXES if axis in {"workers", *swept}]


# (title, what it means); the swept axes come between the first and the second.
_FIELDS = (
    ("algorithm", "label"),
    ("status", "ok where any repetition is valid"),
    ("reps", "valid repetitions"),
    ("step ms", "median over repetitions of the window's duration / steps, of the slowest worker"),
    ("compute ms", "of a step"),
    ("stall ms", "waiting for the network"),
    ("overhead ms", "the rest of a step"),
    ("scalability", "T(1) / T(N), median"),
    ("least", "scalability of the worst repetition"),
    ("most", "scalability of the best repetition"),
    ("law", "scalability by the step-time law"),
    ("deviation %", "of the measured from the predicted scalability"),
    ("accuracy %", "median at the end"),
    ("MB a step", "payload that one worker hands over"),
    ("late p99 ms", "99th percentile of how late the emulator delivered, last repetition"),
    ("error ms", "largest error of a measured one-way delay, last repetition"),
)


def _header(axes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    first, *others = _FIELDS
    return (first, *((AXIS_TITLES.get(axis, axis).replace("_", " "), "swept") for axis in axes), *others)


def _line(line: Row, axes: Sequence[str], rows: Sequence[Row], folder: RunFolder, path: Path) -> Line:
    one = line["workers"] == 1
    ok = line["status"] == "ok"

    def number(value: Any, digits: int, scale: float = 1.0) -> Entry:
        if _absent(value) or not ok:
            return Entry("", math.inf)
        return Entry(f"{float(value) * scale:.{digits}f}", float(value) * scale)

    entries = [
        Entry(str(line["algorithm"]), str(line["algorithm"])),
        *(_axis(line[axis]) for axis in axes),
        Entry(str(line["status"]), str(line["status"])),
        Entry(str(line["repeats"]), float(line["repeats"])),
        *(number(line[f"{part}_s"], 1, 1e3) for part in ("step_time", "compute", "stall", "overhead")),
        number(line["scalability"], 3),
        number(line["scalability_min"], 3),
        number(line["scalability_max"], 3),
        number(line["predicted_scalability"], 3),
        number(line["deviation_pct"], 1) if not one else Entry("", math.inf),
        number(line["accuracy"], 2, 100),
        number(megabytes_per_step(line), 3),
        number(line["lateness_p99_ms"], 2),
        number(line["one_way_error_ms"], 3),
    ]
    return Line(str(line["status"]), tuple(entries), _links(line, rows, folder, path))


def _axis(value: Any) -> Entry:
    if _absent(value):
        return Entry("-", -math.inf)
    return Entry(_plain(value), float(value) if isinstance(value, int | float) else str(value))


def _links(line: Row, rows: Sequence[Row], folder: RunFolder, path: Path) -> tuple[tuple[str, str], ...]:
    if (folder.path / RECORDED).is_file():
        return ()
    mine = [row for row in rows if row["cell"] == line["cell"] and row["status"] == "ok"]
    files = [
        (f"{row['rep']}", folder.path / "cells" / row["cell"] / f"rep-{row['rep']}" / "result.json") for row in mine
    ]
    return tuple((text, relative(file, path)) for text, file in files)


def relative(file: Path, page: Path) -> str:
    """The address of a file for a link on a page."""
    return quote(os.path.relpath(file, page.parent).replace(os.sep, "/"))


# ---------------------------------------------------------------- findings, failures, environment


def _findings(broken: Sequence[Objection]) -> tuple[Finding, ...]:
    findings = []
    for rule in RULES:
        texts: dict[str, list[str]] = {}
        for one in broken:
            if one.rule == rule:
                texts.setdefault(one.text, []).append(one.cell or "the whole run")
        findings.append(Finding(rule, meaning(rule), tuple((text, tuple(where)) for text, where in texts.items())))
    return tuple(findings)


def _fidelity(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
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


def _failure(folder: RunFolder, row: Row, path: Path) -> Failure:
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


def _environment(folder: RunFolder) -> tuple[tuple[str, str], ...]:
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


def _raw(folder: RunFolder, path: Path) -> tuple[tuple[str, str], ...]:
    names = (
        "result.json",
        "network.json",
        "results.parquet",
        RECORDED,
        "spec.toml",
        "spec.resolved.json",
        "manifest.json",
        "events.jsonl",
        "cells",
        "figures",
    )
    return tuple((name, relative(folder.path / name, path)) for name in names if (folder.path / name).exists())


def _description(folder: RunFolder) -> str:
    try:
        return str(json.loads((folder.path / "spec.resolved.json").read_text(encoding="utf-8")).get("description", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _results(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows by columns, for programs that find the page."""
    names = [name for name in COLUMNS if any(row.get(name) is not None for row in rows)]
    return {"columns": names, "rows": [[row.get(name) for name in names] for row in rows]}


def _absent(value: object) -> bool:
    return value is None or value != value


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else str(value)
