"""Figures of a run: functions from pivots to matplotlib figures, and `draw_all`, which writes the files.

Layout
    wanbench.mplstyle  fonts, lines and file settings
    style.py           the look of every algorithm; saving with equal bytes for equal data
    layout.py          strips of a figure, in inches
    caption.py         title and caption
    scalability.py     scalability against round-trip time, with the step-time law
    bars.py            scalability where no round-trip time is swept
    step_time.py       compute, stall and overhead of a step
    parity.py          the same cells at two values of an axis

Only matplotlib's object interface is used: no pyplot, no global state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.analysis import AXES, AnalysisError, Pivot, cells, frame, pivots
from harness.comparison import Comparison
from harness.figures.bars import scalability_bars
from harness.figures.parity import parity
from harness.figures.scalability import scalability_by_rtt
from harness.figures.step_time import step_time
from harness.figures.style import COLUMN_IN, FORMATS, PAGE_IN, save

__all__ = ["FORMATS", "draw_all", "draw_parity", "parity", "scalability_bars", "scalability_by_rtt", "step_time"]

# Collectives differ too much to share a figure.
_COLUMN_AXES = [axis for axis in AXES if axis != "collective"]


def draw_all(
    rows: Iterable[Mapping[str, Any]],
    run_name: str,
    outdir: Path,
    formats: Sequence[str] = FORMATS,
    cells_total: int | None = None,
) -> list[Path]:
    """Draw what a run's rows can show; one set of figures for each collective (and further swept axis).

    Every figure comes in page width and, as `<name>-column`, in column width. Files are replaced atomically,
    and equal rows give equal bytes.

    Args:
        rows: results, one a repetition. run_name: for the captions. outdir: made if missing.
        formats: of `FORMATS`. cells_total: cells of the run, if it is still going on.

    Returns:
        The files, in the order of drawing.

    Raises:
        AnalysisError: an unknown format, or no cell of more than one worker has a valid result.
    """
    for form in formats:
        if form not in FORMATS:
            raise AnalysisError(f"figure format: expected one of {', '.join(FORMATS)}, got {form!r}")
    table = frame(rows)
    drawable = [pivot for pivot in pivots(table, _COLUMN_AXES) if _has_values(pivot)]
    if not drawable:
        raise AnalysisError("no cell of more than one worker has a valid result yet; there is nothing to draw")
    finished = int((cells(table)["status"] == "ok").sum())
    partial = cells_total is not None and finished < cells_total
    progress = f"{finished} of {cells_total} cells" if partial else None
    outdir.mkdir(parents=True, exist_ok=True)
    written = []
    for pivot in drawable:
        for name, draw in _drawings(pivot):
            for suffix, width_in in (("", PAGE_IN), ("-column", COLUMN_IN)):
                figure = draw(pivot, run_name, width_in, progress)
                stem = name + _slug(pivot) + suffix
                written += [save(figure, outdir / f"{stem}.{form}") for form in formats]
    return written


def draw_parity(comparison: Comparison, run_name: str, outdir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """The parity figure in both widths, as `parity-by-<axis>`; returns the files."""
    outdir.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, width_in in (("", PAGE_IN), ("-column", COLUMN_IN)):
        figure = parity(comparison, run_name, width_in)
        stem = f"parity-by-{comparison.by}{suffix}"
        written += [save(figure, outdir / f"{stem}.{form}") for form in formats]
    return written


def _drawings(pivot: Pivot) -> list[tuple[str, Any]]:
    if pivot.column_axis == "rtt_ms":
        return [("scalability-by-rtt", scalability_by_rtt), ("step-time", step_time)]
    return [("scalability", scalability_bars), ("step-time", step_time)]


def _has_values(pivot: Pivot) -> bool:
    return any(line["status"] == "ok" for line in pivot.lines.values())


def _slug(pivot: Pivot) -> str:
    """ "-gloo-workers-8": what tells this pivot's figures from those of the others."""
    parts = [
        f"{value}" if axis in {"collective", "profile", "tcp", "testbed", "emulator"} else f"{axis}-{_plain(value)}"
        for axis, value in pivot.fixed.items()
    ]
    return "".join("-" + re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
