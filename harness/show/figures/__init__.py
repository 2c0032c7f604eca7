"""Figures of a run: functions from pivots to matplotlib figures, and `draw_all`, which writes the files.

Layout
    wanbench.mplstyle  fonts, lines and file settings
    style.py           the look of every algorithm; saving with equal bytes for equal data
    layout.py          strips of a figure, in inches
    caption.py         subject and caption
    finding.py         titles that state a finding, computed from the data
    names.py           names of algorithms and families that a reader understands
    ends.py            names at the ends of curves
    bar_rows.py        what the bar charts share
    points.py          the points of a figure, as CSV
    hover.py           a figure as part of a web page, with a note on every point
    gallery.py         which figures a run has
    pareto.py          scalability against accuracy
    scalability.py     scalability against round-trip time, with the step-time law
    bars.py            scalability of runs without a round-trip time axis
    step_time.py       compute, stall and overhead of a step
    learning.py        accuracy against steps and time
    learning_time.py   accuracy against time, one panel per network
    timeline.py        steps and messages of one worker
    pace.py            step time against time, while the network changes
    network.py         the network as configured and measured
    trend.py           measures against any quantity, with published values
    stability.py       the largest stable step size against delay
    map.py             the best setting over round-trip time and rate
    parity.py          the same cells at two values of an axis

Only matplotlib's object interface is used: no pyplot, no global state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.compare import Comparison
from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.show.figures.bars import scalability_bars
from wanbench.harness.show.figures.gallery import Drawing, gallery
from wanbench.harness.show.figures.learning import learning
from wanbench.harness.show.figures.network import network_matrix
from wanbench.harness.show.figures.pareto import pareto
from wanbench.harness.show.figures.parity import parity
from wanbench.harness.show.figures.points import FORMAT as POINTS
from wanbench.harness.show.figures.points import of_comparison, write
from wanbench.harness.show.figures.scalability import scalability_by_rtt
from wanbench.harness.show.figures.step_time import step_time
from wanbench.harness.show.figures.style import COLUMN_IN, FORMATS, PAGE_IN, save
from wanbench.harness.show.figures.timeline import timeline

__all__ = [
    "FORMATS",
    "draw_all",
    "draw_parity",
    "learning",
    "network_matrix",
    "pareto",
    "parity",
    "save_all",
    "scalability_bars",
    "scalability_by_rtt",
    "step_time",
    "timeline",
]


def draw_all(
    rows: Iterable[Mapping[str, Any]],
    run_name: str,
    outdir: Path,
    formats: Sequence[str] = FORMATS,
    cells_total: int | None = None,
    evidence: Evidence | None = None,
    beside: tuple[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[Path]:
    """Draw what a run can show; one set of figures for each collective (and further swept axis).

    Every figure comes in page width and, as `<name>-column`, in column width; its points are in `<name>.csv`. Files
    are replaced atomically, and equal rows give equal bytes.

    Args:
        rows: results, one per repetition. run_name: for the captions. outdir: made if missing.
        formats: of `FORMATS`. cells_total: cells of the run, if it is not finished.
        evidence: for learning curves, the timeline and the network.
        beside: name and rows of another run, drawn dashed beside this one.

    Returns:
        The files, in the order of drawing.

    Raises:
        AnalysisError: an unknown format, no cell of more than one worker has a valid result, or nothing to draw beside.
    """
    for form in formats:
        if form not in FORMATS:
            raise AnalysisError(f"figure format: expected one of {', '.join(FORMATS)}, got {form!r}")
    found = list(rows)
    finished = len({row["cell"] for row in found if row["status"] == "ok"})
    partial = cells_total is not None and finished < cells_total
    drawings = gallery(found, run_name, evidence, f"{finished} of {cells_total} cells" if partial else None, beside)
    if not drawings:
        raise AnalysisError("no cell of more than one worker has a valid result yet; there is nothing to draw")
    return [path for drawing in drawings for path in save_all(drawing, outdir, formats)]


def draw_parity(comparison: Comparison, run_name: str, outdir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The parity figure in both widths, as `parity-by-<axis>`; returns the files."""
    name = f"parity-by-{comparison.by}"
    drawing = Drawing(name, name, lambda width: parity(comparison, run_name, width), lambda: of_comparison(comparison))
    return save_all(drawing, outdir, formats)


def save_all(drawing: Drawing, outdir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """A figure in both widths and its points, in some formats; returns the files."""
    outdir.mkdir(parents=True, exist_ok=True)
    pictures = [form for form in formats if form != POINTS]
    written = []
    for suffix, width_in in (("", PAGE_IN), ("-column", COLUMN_IN)) if pictures else ():
        figure = drawing.draw(width_in)
        written += [save(figure, outdir / f"{drawing.name}{suffix}.{form}") for form in pictures]
    if POINTS in formats:
        written.append(write(drawing.points(), outdir / f"{drawing.name}.{POINTS}"))
    return written
