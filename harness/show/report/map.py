"""The map of a run on its page: the drawing, and what is best at each point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import rate_text
from wanbench.harness.show.figures.hover import inline_svg
from wanbench.harness.show.figures.map import MAP_FILE, MapData, read_map
from wanbench.harness.show.figures.style import PAGE_IN


@dataclass(frozen=True)
class MapOnPage:
    """A map.

    Attributes:
        title: the finding. subject: workload and workers. svg: the drawing. column, row: of the point at first.
        data: for the script: `corners` are the lowest and the highest point in the drawing's coordinates; the lists of
            points go row by row from the lowest rate.
    """

    title: str
    subject: str
    svg: str
    column: int
    row: int
    data: dict[str, Any]


def map_on_page(folder: Path) -> MapOnPage | None:
    """The map of a run folder, None without one. Raises: SpecError: it cannot be read."""
    if not (folder / MAP_FILE).is_file():
        return None
    stored = read_map(folder)
    figure = stored.drawing.draw(PAGE_IN)
    title, _, subject = stored.title.partition("\n")
    data, names = stored.data, list(stored.data.kinds)
    column, row = _first(data)
    return MapOnPage(
        title,
        subject,
        inline_svg(figure, "map", stored.title.replace("\n", ": ")),
        column,
        row,
        {
            "rtts": [f"{rtt_ms:.3g} ms" for rtt_ms in data.rtts_ms],
            "rates": [rate_text(float(f"{mbit:.3g}")) for mbit in data.mbits],
            "names": names,
            "best": [names.index(name) for line in data.names for name in line],
            "gains": [float(f"{gain:.2g}") for line in data.gains for gain in line],
            "unknown": [int(each) for line in data.unknown for each in line],
            "corners": _corners(figure, data),
        },
    )


def _first(data: MapData) -> tuple[int, int]:
    """The grid point nearest to the user's network, or the middle."""
    if data.here is None:
        return len(data.rtts_ms) // 2, len(data.mbits) // 2
    rtt_ms, mbit = data.here
    column, row = (
        min(range(len(values)), key=lambda place: abs(math.log(values[place] / value)))
        for values, value in ((data.rtts_ms, rtt_ms), (data.mbits, mbit))
    )
    return column, row


def _corners(figure: Figure, data: MapData) -> list[float]:
    """Left, lower, right and upper: the first and the last grid point, in points from the upper left."""
    scale, height, axes = 72 / figure.dpi, figure.bbox.height, figure.axes[0]
    found = []
    for place in (0, -1):
        x, y = axes.transData.transform((data.rtts_ms[place], data.mbits[place]))
        found += [round(x * scale, 2), round((height - y) * scale, 2)]
    return found
