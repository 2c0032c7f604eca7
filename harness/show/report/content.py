"""The content of the page of a run, as plain data; the drawings alone are markup."""

import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from glob import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from matplotlib.figure import Figure

from wanbench.harness.analysis.axes import AXIS_TITLES, absent
from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import Row, cells, frame, grouped, remarks
from wanbench.harness.errors import SpecError
from wanbench.harness.results import planned
from wanbench.harness.results.columns import SHOWN
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.rules import RULES
from wanbench.harness.results.store import RECORDED, RunFolder
from wanbench.harness.results.verify import CHECKS, Objection, not_applicable, objections, problems_text
from wanbench.harness.show.best import best_note, best_row, best_sentence, best_titles
from wanbench.harness.show.figures.gallery import gallery
from wanbench.harness.show.figures.hover import inline_svg
from wanbench.harness.show.figures.map import MAP_FILE, MATTERS, MapData, read_map
from wanbench.harness.show.figures.style import PAGE_IN
from wanbench.harness.show.report.cells import cell_line, header, shown_axes, valid_reps, view_of
from wanbench.harness.show.tables import in_json
from wanbench.harness.spec.tables import TUNED
from wanbench.harness.text import plain, rate
from wanbench.workloads.comm.blocks import MTU

_MOST_FIGURES = 16
_MOST_BARS = 1000  # of one figure: nobody reads more, and a page of them is slow
_MOST_FAILURES = 60
_TAIL_LINES = 30
_RAW = (
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


def content_of(folder: RunFolder, path: Path, *, across_hosts: bool = False) -> SimpleNamespace:
    """Read a run folder for a page at `path`: what the template shows, by its names.

    The page names files that cannot be read.
    """
    link_to = partial(_relative, path.parent)
    stored = folder.read()
    named = [{**row, "run": folder.name} for row in stored.rows]
    rows = grouped(named, across_hosts=across_hosts)
    table = frame(rows)
    summary = cells(table)
    broken, why_unjudged = objections_to(folder, rows)
    notes = [f"{stored.note[0].upper()}{stored.note[1:]}"] if stored.note else []
    notes += [remark for _, remark in remarks(named, across_hosts=across_hosts)]
    drawn_map, map_problems = _map(folder)
    axes, reps = shown_axes(table), valid_reps(rows)
    lost = sorted((row for row in rows if row["status"] != "ok"), key=lambda row: (row["cell"], row["rep"]))
    return SimpleNamespace(
        run=folder.name,
        description=str(stored.planned.spec.get("description", "")) if stored.planned is not None else "",
        **_verdict(folder, rows, broken, why_unjudged, notes),
        counts=[(status, sum(row["status"] == status for row in rows)) for status in ("ok", "invalid", "failed")],
        facts=_facts(summary),
        **_best(rows),
        **_figures(rows, folder),
        header=header(axes),
        lines=[cell_line(line, axes, reps.get((line["cell"], line["hosts"]), ()), folder, link_to) for line in summary],
        view=view_of(summary, axes),
        map=drawn_map,
        findings=_outcomes(broken, rows),
        fidelity=_fidelity_of(rows),
        unreadable=[*stored.problems, *map_problems, *([why_unjudged] if why_unjudged else [])],
        failures=[_failure_of(folder, row, link_to) for row in lost[:_MOST_FAILURES]],
        failures_left=max(0, len(lost) - _MOST_FAILURES),
        environment=_environment_of(folder),
        spec=_text(folder.path / "spec.toml") or _text(folder.path / "spec.resolved.json"),
        raw=[(name, link_to(folder.path / name)) for name in _RAW if (folder.path / name).exists()],
        results=_results(rows),
    )


def _relative(base: Path, file: Path) -> str:
    """The address of a file in a link on a page in the folder `base`."""
    return quote(os.path.relpath(file, base).replace(os.sep, "/"))


def _verdict(
    folder: RunFolder, rows: Sequence[Row], broken: Sequence[Objection], why_unjudged: str | None, notes: Sequence[str]
) -> dict[str, str]:
    """Whether the run can be published, and the sentences under its name."""
    verdict, text = _verdict_of(rows, broken, why_unjudged)
    if not rows and (folder.path / "result.json").is_file():
        text, notes = "A run of `wanbench exec`. Its result is in result.json, its network in network.json.", []
    return {"verdict": verdict, "verdict_text": " ".join([text, *(f"{note}." for note in notes)])}


def _verdict_of(rows: Sequence[Row], broken: Sequence[Objection], unjudged: str | None) -> tuple[str, str]:
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


def _outcomes(broken: Sequence[Objection], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every rule of `verify` with its requirement, why it does not apply, and its problems as (text, cells)."""
    texts: dict[str, dict[str, list[str]]] = {rule: {} for rule in CHECKS}
    for objection in broken:
        texts[objection.rule].setdefault(objection.text, []).append(objection.cell or "the whole run")
    return [
        {"rule": rule, "meaning": RULES[rule], "exempt": not_applicable(rule, rows), "broken": list(by_text.items())}
        for rule, by_text in texts.items()
    ]


def _fidelity_of(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
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


def _failure_of(folder: RunFolder, row: Row, link_to: Callable[[Path], str]) -> dict[str, Any]:
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


def _environment_of(folder: RunFolder) -> tuple[tuple[str, str], ...]:
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


def _best(rows: Sequence[Row]) -> dict[str, Any]:
    """The first section: the best algorithm in every case."""
    cases = networks(rows)
    best = [best_row(network) for network in cases]
    titles = {column: title.replace("\n", " ") for column, title in best_titles(cases, best).items()}
    return {"headline": best_sentence(cases), "best_titles": titles, "best": best, "best_note": best_note(cases)}


def _facts(summary: Sequence[Row]) -> list[tuple[str, str]]:
    lines = [line for line in summary if line["workers"] != 1]
    names = (
        "workload", "payload_scale", "workers", "profile", "testbed", "emulator", "collective", "mtu", "tcp",
        "host_tcp", "timeline",
    )  # fmt: skip
    usual = {"payload_scale": 1, "mtu": MTU, "host_tcp": TUNED}
    facts = []
    for name in names:
        values = dict.fromkeys(plain(line[name]) for line in lines if not absent(line[name]))
        if values and any(line[name] != usual.get(name) for line in lines):
            facts.append((AXIS_TITLES.get(name, name).replace("_", " "), ", ".join(values)))
    hosts = dict.fromkeys(host for line in lines for host in line["on_hosts"] if host is not None)
    if hosts:
        facts.append(("host" if len(hosts) == 1 else "hosts", ", ".join(hosts)))
    repeats = sorted({int(line["repeats"]) for line in lines if line["repeats"]})
    if repeats:
        facts.append(
            ("valid repetitions per cell", f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}")
        )
    return facts


def _figures(rows: Sequence[Row], folder: RunFolder) -> dict[str, Any]:
    """The figures, and the number of those that are left out."""
    drawings = gallery(rows, folder.name, Evidence(folder))
    # If there are too many figures, the single ones are kept: trade-off, learning, timeline, network.
    many = [d for d in drawings if d.name.startswith(("scalability", "step-time"))]
    readable = [d for d in many if d.name.startswith("scalability-by-rtt") or len(d.points()) <= _MOST_BARS]
    room = max(0, _MOST_FIGURES - (len(drawings) - len(many)))
    dropped = {id(d) for d in many} - {id(d) for d in readable[:room]}
    kept = [d for d in drawings if id(d) not in dropped]
    drawn = [
        {"title": d.title, "svg": Markup(inline_svg(d.draw(PAGE_IN), f"f{index}", d.title))}
        for index, d in enumerate(kept)
    ]
    return {"figures": drawn, "figures_left": len(dropped)}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _results(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as columns, for programs that read the page. An infinite loss is null, because JSON cannot hold it."""
    names = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    return {"columns": names, "rows": [[in_json(row.get(name)) for name in names] for row in rows]}


def _map(folder: RunFolder) -> tuple[dict[str, Any] | None, list[str]]:
    """The map, and why it cannot be read."""
    try:
        return map_on_page(folder.path), []
    except SpecError as error:
        return None, [str(error)]


def map_on_page(folder: Path) -> dict[str, Any] | None:
    """The map of a run folder, None without one.

    Returns:
        title: the finding. subject: workload and workers. svg: the drawing. column, row: of the point at first.
        data: for the script: `corners` are the lowest and the highest point in the drawing's coordinates; the lists of
        points go row by row from the lowest rate.

    Raises:
        SpecError: it cannot be read.
    """
    if not (folder / MAP_FILE).is_file():
        return None
    data = read_map(folder)
    figure = data.drawing.draw(PAGE_IN)
    names, (column, row) = list(data.kinds), _first(data)
    return {
        "title": data.title.partition("\n")[0],
        "subject": data.subject,
        "svg": Markup(inline_svg(figure, "map", data.title.replace("\n", ": "))),
        "column": column,
        "row": row,
        "data": {
            "rtts": [f"{rtt_ms:.3g} ms" for rtt_ms in data.rtts_ms],
            "rates": [rate(float(f"{mbit:.3g}")) for mbit in data.mbits],
            "names": [data.words[name] for name in names],
            "best": [names.index(name) for line in data.names for name in line],
            "gains": [float(f"{gain:.2g}") for line in data.gains for gain in line],
            "unknown": [int(ratio > MATTERS) for line in data.unknown for ratio in line],
            "corners": _corners(figure, data),
        },
    }


def _first(data: MapData) -> tuple[int, int]:
    """The grid point nearest to the user's network, or the middle."""
    if data.here is None:
        return len(data.rtts_ms) // 2, len(data.mbits) // 2
    rtt_ms, mbit = data.here
    column, row = (
        min(range(len(values)), key=lambda index: abs(math.log(values[index] / value)))
        for values, value in ((data.rtts_ms, rtt_ms), (data.mbits, mbit))
    )
    return column, row


def _corners(figure: Figure, data: MapData) -> list[float]:
    """Left, lower, right and upper: the first and the last grid point, in points from the upper left."""
    scale, height, axes = 72 / figure.dpi, figure.bbox.height, figure.axes[0]
    corners = []
    for end in (0, -1):
        x, y = axes.transData.transform((data.rtts_ms[end], data.mbits[end]))
        corners += [round(x * scale, 2), round((height - y) * scale, 2)]
    return corners
