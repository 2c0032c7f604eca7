"""The content of the page of a run, as plain data without markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.order import absent, by_value
from wanbench.harness.analysis.pooling import grouped, remarks
from wanbench.harness.analysis.summary import AXIS_TITLES, COLUMNS, AnalysisError, cells, frame, provenance, records
from wanbench.harness.errors import SpecError
from wanbench.harness.results import planned
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.store import RECORDED, RunFolder
from wanbench.harness.show.grid import plain
from wanbench.harness.show.headline import Best, best_note, best_of, best_titles, headline_of
from wanbench.harness.show.report.cell_table import Line, cell_line, header, shown_axes, valid_reps
from wanbench.harness.show.report.findings import (
    Failure,
    RuleOutcome,
    environment_of,
    failure_of,
    fidelity_of,
    findings_of,
    objections_to,
    verdict_of,
)
from wanbench.harness.show.report.map import MapOnPage, map_on_page
from wanbench.harness.show.report.rendering import Row, relative
from wanbench.harness.show.tables import in_json

_MOST_FIGURES = 16
_MOST_BARS = 1000  # of one figure: nobody reads more, and a page of them is slow
_MOST_FAILURES = 60


@dataclass(frozen=True)
class Measure:
    """What the chart can show upwards: a column of the cells in a unit."""

    name: str
    title: str
    scale: float
    logarithmic: bool


_MEASURES = (
    Measure("scalability", "scalability", 1, False),
    Measure("step_time_s", "step time (ms)", 1e3, True),
    Measure("stall_s", "stall per step (ms)", 1e3, False),
    Measure("accuracy", "accuracy (%)", 100, False),
    Measure("time_to_target_s", "time to target (s)", 1, True),
)


@dataclass(frozen=True)
class Axis:
    """An axis that differs between cells.

    Attributes:
        values: as texts, in the order of tables. numbers: the same as numbers; None if they are names.
    """

    name: str
    title: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None


@dataclass(frozen=True)
class View:
    """All that can be chosen.

    Attributes:
        axes: the algorithm first. measures: those that some cell has. colours, dashes: of each algorithm.
        cells: in the order of the table, each with the index of its value on every axis (None: a one-worker cell) and
            the median, minimum and maximum of each measure. The maximum of a time is None if a repetition never got
            there.
        provenance: where the numbers come from.
    """

    axes: tuple[Axis, ...]
    measures: tuple[Measure, ...]
    colours: tuple[str, ...]
    dashes: tuple[str, ...]
    cells: tuple[tuple[tuple[int, ...] | None, tuple[tuple[float | None, ...], ...]], ...]
    provenance: str

    def to_json(self) -> dict[str, Any]:
        """Plain data for the page's scripts."""
        return asdict(self)


@dataclass(frozen=True)
class Drawn:
    """A figure on the page."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Content:
    """The whole page. The template uses these names."""

    run: str
    description: str
    verdict: str
    verdict_text: str
    counts: tuple[tuple[str, int], ...]
    facts: tuple[tuple[str, str], ...]
    headline: str
    best_titles: Mapping[str, str]
    best: tuple[Best, ...]
    best_note: str
    figures: tuple[Drawn, ...]
    figures_left: int
    header: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    view: View | None
    map: MapOnPage | None
    findings: tuple[RuleOutcome, ...]
    fidelity: tuple[tuple[str, str], ...]
    unreadable: tuple[str, ...]
    failures: tuple[Failure, ...]
    failures_left: int
    environment: tuple[tuple[str, str], ...]
    spec: str | None
    raw: tuple[tuple[str, str], ...]
    results: dict[str, Any]


def content_of(folder: RunFolder, path: Path, *, across_hosts: bool = False) -> Content:
    """Read a run folder for a page at `path`. The page names files that cannot be read."""
    stored = folder.read()
    unreadable = stored.problems
    named = [{**row, "run": folder.name} for row in stored.rows]
    rows = grouped(named, across_hosts=across_hosts)
    table = frame(rows)
    summary = records(cells(table)) if len(table) else []
    try:
        found = networks(rows)
    except AnalysisError:
        found = []
    best = tuple(best_of(network) for network in found)
    broken, why_unjudged = objections_to(folder, rows)
    figures, left = _figures(rows, folder)
    lost = sorted((row for row in rows if row["status"] != "ok"), key=lambda row: (row["cell"], row["rep"]))
    axes, reps = shown_axes(table), valid_reps(rows)
    try:
        found_map = map_on_page(folder.path)
    except SpecError as error:
        found_map, unreadable = None, [*unreadable, str(error)]
    spec = _text(folder.path / "spec.toml") or _text(folder.path / "spec.resolved.json")
    verdict, text = verdict_of(rows, broken, why_unjudged)
    if stored.note:
        text = f"{text} {stored.note[0].upper()}{stored.note[1:]}."
    text += "".join(f" {remark}." for _, remark in remarks(named, across_hosts=across_hosts))
    if not rows and (folder.path / "result.json").is_file():
        text = "A run of `wanbench exec`. Its result is in result.json, its network in network.json."
    return Content(
        run=folder.name,
        description=_description(folder),
        verdict=verdict,
        verdict_text=text,
        counts=tuple((status, sum(row["status"] == status for row in rows)) for status in ("ok", "invalid", "failed")),
        facts=_facts(summary),
        headline=headline_of(found),
        best_titles={field: title.replace("\n", " ") for field, title in best_titles(found, best).items()},
        best=best,
        best_note=best_note(found),
        figures=figures,
        figures_left=left,
        header=header(axes),
        lines=tuple(
            cell_line(line, axes, reps.get((line["cell"], line["hosts"]), ()), folder, path) for line in summary
        ),
        view=view_of(summary, axes),
        map=found_map,
        findings=findings_of(broken),
        fidelity=fidelity_of(rows),
        unreadable=(*unreadable, *([why_unjudged] if why_unjudged else [])),
        failures=tuple(failure_of(folder, row, path) for row in lost[:_MOST_FAILURES]),
        failures_left=max(0, len(lost) - _MOST_FAILURES),
        environment=environment_of(folder),
        spec=spec,
        raw=_raw(folder, path),
        results=_results(rows),
    )


def _facts(summary: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    lines = [line for line in summary if line["workers"] != 1]
    names = ("workload", "payload_scale", "workers", "profile", "testbed", "emulator", "collective", "tcp", "timeline")
    facts = []
    for name in names:
        values = dict.fromkeys(plain(line[name]) for line in lines if not absent(line[name]))
        if values and (name != "payload_scale" or any(line[name] != 1 for line in lines)):
            facts.append((AXIS_TITLES.get(name, name).replace("_", " "), ", ".join(values)))
    hosts = dict.fromkeys(host for line in lines for host in line["on_hosts"] if host is not None)
    if hosts:
        facts.append(("host" if len(hosts) == 1 else "hosts", ", ".join(hosts)))
    repeats = sorted({int(line["repeats"]) for line in lines if line["repeats"]})
    if repeats:
        facts.append(
            ("valid repetitions per cell", f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}")
        )
    return tuple(facts)


def _figures(rows: Sequence[Row], folder: RunFolder) -> tuple[tuple[Drawn, ...], int]:
    from wanbench.harness.show.figures.gallery import gallery
    from wanbench.harness.show.figures.hover import inline_svg
    from wanbench.harness.show.figures.style import PAGE_IN

    drawings = gallery(rows, folder.name, Evidence(folder))
    # If there are too many figures, the single ones are kept: trade-off, learning, timeline, network.
    many = [d for d in drawings if d.name.startswith(("scalability", "step-time"))]
    readable = [d for d in many if d.name.startswith("scalability-by-rtt") or len(d.points()) <= _MOST_BARS]
    room = max(0, _MOST_FIGURES - (len(drawings) - len(many)))
    dropped = {id(d) for d in many} - {id(d) for d in readable[:room]}
    kept = [d for d in drawings if id(d) not in dropped]
    drawn = [
        Drawn(f"f{place}", d.title, inline_svg(d.draw(PAGE_IN), f"f{place}", d.title)) for place, d in enumerate(kept)
    ]
    return tuple(drawn), len(dropped)


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
        return str(planned.read(folder.path).spec.get("description", ""))
    except SpecError:
        return ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _results(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as columns, for programs that read the page. An infinite loss is null, because JSON cannot hold it."""
    names = [name for name in COLUMNS if any(row.get(name) is not None for row in rows)]
    return {"columns": names, "rows": [[in_json(row.get(name)) for name in names] for row in rows]}


def view_of(summary: Sequence[Row], axes: Sequence[str]) -> View | None:
    """The view of cells, from the lines of `harness.analysis.summary.cells`; None if nothing can be compared.

    Args:
        axes: the columns of the table that may differ between cells, besides the algorithm.
    """
    compared = [line for line in summary if line["workers"] != 1]
    if not any(line["status"] == "ok" for line in compared):
        return None
    algorithms = tuple(dict.fromkeys(str(line["algorithm"]) for line in compared))
    found = [Axis("algorithm", "algorithm", algorithms, None)]
    found += [axis for name in axes if len((axis := _axis(name, compared)).values) > 1]
    measures = tuple(each for each in _MEASURES if any(_finite(line[each.name]) for line in compared))
    places: list[Mapping[str, int]] = [{text: place for place, text in enumerate(axis.values)} for axis in found]
    cells = tuple(
        (
            None
            if line["workers"] == 1
            else tuple(place[_value_text(line[axis.name])] for axis, place in zip(found, places, strict=True)),
            tuple(_values(line, each) for each in measures),
        )
        for line in summary
    )
    testbeds = {str(line["testbed"]) for line in compared if line["status"] == "ok"}
    return View(tuple(found), measures, *_looks(compared, algorithms), cells, provenance(testbeds))


def _axis(name: str, lines: Sequence[Row]) -> Axis:
    values = sorted({_value_text(line[name]): line[name] for line in lines}.items(), key=lambda item: by_value(item[1]))
    numbers = [value for _, value in values]
    numeric = all(isinstance(value, int | float) and not absent(value) for value in numbers)
    title = AXIS_TITLES.get(name, name).replace("_", " ")
    return Axis(name, title, tuple(text for text, _ in values), tuple(map(float, numbers)) if numeric else None)


def _value_text(value: Any) -> str:
    return "-" if absent(value) else plain(value)


def _values(line: Row, measure: Measure) -> tuple[float | None, ...]:
    if line["status"] != "ok":
        return (None, None, None)
    ends = (line[measure.name], line[f"{measure.name}_min"], line[f"{measure.name}_max"])
    return tuple(float(f"{value * measure.scale:.5g}") if _finite(value) else None for value in ends)


def _finite(value: Any) -> bool:
    return not absent(value) and math.isfinite(value)


def _looks(lines: Sequence[Row], algorithms: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from wanbench.harness.show.figures.style import styles

    one = {str(line["algorithm"]): line for line in lines}
    looks = styles([(label, str(one[label]["kind"]), one[label]["params"] or {}) for label in algorithms])
    dashes = ["" if look.dashes == "-" else " ".join(f"{part:g}" for part in look.dashes[1]) for look in looks.values()]
    return tuple(look.colour.lower() for look in looks.values()), tuple(dashes)
