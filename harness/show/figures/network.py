"""The network as a matrix: configured and, if emulated, measured one-way delay and rate of every directed path."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from wanbench.harness.emulators.impairments import four_digits
from wanbench.harness.show.figures.drawing import Point
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet, fitting
from wanbench.harness.show.figures.style import PAGE_IN, wanbench_style

MOST_SITES = 12
_NAME_PT = 6.5
_ROW_IN = 0.42
_TEXT = "#1A1B1E"  # on light shades, also on a dark page
_SHADES = LinearSegmentedColormap.from_list("delay", ["#EAF1F8", "#A9C4E0"])


@wanbench_style()
def network_matrix(paths: Sequence[Mapping[str, Any]], subject: str, about: str, width_in: float = PAGE_IN) -> Figure:
    """From the site of the row to the site of the column.

    Args:
        paths: as `harness.results.evidence.Evidence.network` gives them. subject, about: below the title, and below
        the figure.
    """
    sites = list(dict.fromkeys([path["src"] for path in paths] + [path["dst"] for path in paths]))
    left_in = 0.2 + 0.07 * max(len(site) for site in sites)
    small = (width_in - left_in - 0.1) / len(sites) < 0.8
    measured = any(path["measured_one_way_ms"] is not None for path in paths)
    which = "configured" if not measured else "measured" if small else "measured (configured)"
    caption = f"{about}; from row to column: {which} one-way delay and rate."
    title = f"{_finding(paths)}\n{subject}"
    sheet = Sheet(width_in, _ROW_IN * len(sites), title, caption, {}, left_in=left_in)
    axes = sheet.axes()
    most = max(path["one_way_ms"] for path in paths) or 1.0
    for path in paths:
        _entry(axes, path, (sites.index(path["dst"]), sites.index(path["src"])), most, small=small)
    axes.set_xlim(-0.5, len(sites) - 0.5)
    axes.set_ylim(len(sites) - 0.5, -0.5)
    column_in = sheet.axes_in[0] / len(sites)
    axes.set_xticks(range(len(sites)), [fitting(site, _NAME_PT, column_in) for site in sites])
    axes.set_yticks(range(len(sites)), [fitting(site, _NAME_PT, sheet.left * width_in - 0.08) for site in sites])
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return sheet.figure


def _finding(paths: Sequence[Mapping[str, Any]]) -> str:
    """ "Measured delays are within 0.6 ms of the configured ones"; of a simulation, the span of its delays."""
    delays = [path["one_way_ms"] for path in paths]
    both = [(path["measured_one_way_ms"], path["one_way_ms"]) for path in paths]
    errors = [abs(measured - configured) for measured, configured in both if measured is not None]
    if not errors:
        return f"One-way delays from {min(delays):.4g} to {max(delays):.4g} ms"
    within_ms = math.ceil(10 * max(errors)) / 10
    return f"All measured one-way delays are within {within_ms:g} ms of the configured ones"


def _entry(axes: Axes, path: Mapping[str, Any], cell: tuple[int, int], most_ms: float, *, small: bool) -> None:
    x, y = cell
    shade = _SHADES(path["one_way_ms"] / most_ms)
    wrong = bool(path["reasons"])
    axes.add_patch(
        Rectangle(
            (x - 0.48, y - 0.46),
            0.96,
            0.92,
            facecolor=shade,
            linewidth=1.2 if wrong else 0.0,
            edgecolor="#CC3311",
            hatch="////" if wrong else "",
        )
    )
    delay, rate = _delay(path, small=small), _rate(path, small=small)
    axes.text(
        x,
        y,
        delay + (f"\n{rate}" if rate else ""),
        fontsize=6 if small else 6.5,
        ha="center",
        va="center",
        color=_TEXT,
    )
    reasons = f"; {'; '.join(path['reasons'])}" if wrong else ""
    full = ", ".join(filter(None, [_delay(path, small=False), _rate(path, small=False)]))
    note(axes, x, y, f"{path['src']} to {path['dst']}: {full}{reasons}")


def _delay(path: Mapping[str, Any], *, small: bool) -> str:
    configured, measured = path["one_way_ms"], path["measured_one_way_ms"]
    if measured is None:
        return f"{configured:.4g} ms"
    return f"{measured:.1f} ms" if small else f"{measured:.2f} ms ({configured:.4g})"


def _rate(path: Mapping[str, Any], *, small: bool) -> str:
    configured, measured = path["rate_mbit"], path["measured_rate_mbit"]
    if configured is None:
        return ""
    if measured is None:
        return f"{four_digits(configured)} Mbit/s"
    return f"{measured:.1f} Mbit/s" if small else f"{measured:.1f} Mbit/s ({four_digits(configured)})"


def network_points(paths: Sequence[Mapping[str, Any]]) -> list[Point]:
    """One point per directed path: configured and measured one-way delay and rate."""
    names = ("src", "dst", "one_way_ms", "measured_one_way_ms", "rate_mbit", "measured_rate_mbit")
    return [{name: path[name] for name in names} for path in paths]
