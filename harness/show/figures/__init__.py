"""Figures of a run: functions from pivots to matplotlib figures, and `draw_all`, which writes the files.

Layout
    wanbench.mplstyle  fonts, lines and file settings
    style.py           the look of every algorithm
    layout.py          strips of a figure, in inches, and names at the ends of curves
    names.py           names of algorithms and families that a reader understands
    caption.py         the finding in a title, computed from the data, the subject and the caption
    hover.py           a figure as part of a web page, with a note on every point
    drawing.py         a figure's files: pictures with equal bytes for equal data, and its points as CSV
    gallery.py         which figures a run has
    pareto.py          scalability against accuracy
    curves.py          scalability against round-trip time, with the step-time law; goodput against failures
    bars.py            scalability of runs without a round-trip time axis; compute, stall and overhead of a step
    learning.py        accuracy against steps and time; against time, one panel per network
    timeline.py        steps and messages of one worker; step time while the network changes
    network.py         the network as configured and measured
    map.py             the best setting over round-trip time and rate
    parity.py          the same cells at two values of an axis

Only matplotlib's object interface is used: no pyplot, no global state.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.show.figures.drawing import FORMATS, save_all
from wanbench.harness.show.figures.gallery import gallery


def draw_all(
    rows: Iterable[Mapping[str, Any]],
    run_name: str,
    outdir: Path,
    formats: Sequence[str] = FORMATS,
    evidence: Evidence | None = None,
    beside: tuple[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[Path]:
    """Draw what a run can show; one set of figures for each collective (and further swept axis).

    Every figure comes in page width and, as `<name>-column`, in column width; its points are in `<name>.csv`. Files
    are replaced atomically, and equal rows give equal bytes.

    Args:
        rows: results, one per repetition. run_name: for the captions. outdir: made if missing.
        formats: of `FORMATS`. evidence: for learning curves, the timeline and the network.
        beside: name and rows of another run, drawn dashed beside this one.

    Returns:
        The files, in the order of drawing.

    Raises:
        AnalysisError: no cell of more than one worker has a valid result, or nothing to draw beside.
    """
    drawings = gallery(list(rows), run_name, evidence, beside)
    if not drawings:
        raise AnalysisError("no cell of more than one worker has a valid result yet; there is nothing to draw")
    return [path for drawing in drawings for path in save_all(drawing, outdir, formats)]
