"""A figure to be drawn, and its files: pictures, and its points as CSV. Equal data give equal bytes."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from wanbench.harness.analysis.axes import absent
from wanbench.harness.results.disk import write_bytes, write_text
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, wanbench_style

POINTS = "csv"
FORMATS = ("svg", "pdf", "png", POINTS)
_MOST_PIXELS = 30_000  # of the height of a picture: one of a hundred panels in full resolution takes a gigabyte

Point = Mapping[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        name: of its files. title: for a heading. draw: makes it, of a width in inches. points: the data that it shows,
        with units in the names of columns.
    """

    name: str
    title: str
    draw: Callable[[float], Figure]
    points: Callable[[], Sequence[Point]]


def save_all(drawing: Drawing, outdir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """A figure in both widths and its points, in some formats; returns the files."""
    outdir.mkdir(parents=True, exist_ok=True)
    pictures = [form for form in formats if form != POINTS]
    written = []
    for suffix, width_in in (("", PAGE_IN), ("-column", COLUMN_IN)) if pictures else ():
        figure = drawing.draw(width_in)
        written += [save(figure, outdir / f"{drawing.name}{suffix}.{form}") for form in pictures]
    if POINTS in formats:
        written.append(write_points(drawing.points(), outdir / f"{drawing.name}.{POINTS}"))
    return written


def save(figure: Figure, path: Path) -> Path:
    """Write `figure` in the format of the suffix, atomically and without dates: equal figures are equal bytes."""
    form = path.suffix.removeprefix(".")
    unstamped: dict[str, dict[str, None]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
        "png": {"Software": None},
    }
    buffer = io.BytesIO()
    with wanbench_style():
        dpi = matplotlib.rcParams["savefig.dpi"]
        if form == "png":
            dpi = min(dpi, _MOST_PIXELS / figure.get_figheight())
        figure.savefig(buffer, format=form, metadata=unstamped[form], dpi=dpi)
    write_bytes(path, buffer.getvalue())
    return path


def write_points(points: Sequence[Point], path: Path) -> Path:
    """Write points as CSV, atomically; equal points are equal bytes. A value that is not known is empty."""
    names = dict.fromkeys(name for point in points for name in point)
    text = io.StringIO()
    table = csv.DictWriter(text, list(names), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _written(value) for name, value in point.items()} for point in points)
    write_text(path, text.getvalue())
    return path


def _written(value: object) -> str:
    if absent(value):
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)
