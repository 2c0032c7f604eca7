"""The largest stable step size against delay, with and without momentum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.show.figures.ends import End, label_ends, least_in, strip_in
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet, logarithmic
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, Style, point, styles, wanbench_style

_TICKS = (1, 4, 8, 12, 16, 20)


@dataclass(frozen=True)
class Limit:
    """The limit of one delay and momentum; step sizes are learning rate x curvature.

    Attributes:
        momentum: of the optimiser. delay: D in steps. computed: the limit by theory.
        converges, diverges: neighbouring step sizes of a training, None if it was not tried.
    """

    momentum: float
    delay: int
    computed: float
    converges: float | None = None
    diverges: float | None = None

    @property
    def found(self) -> float | None:
        """The limit by training, between its two step sizes."""
        return None if self.converges is None or self.diverges is None else math.sqrt(self.converges * self.diverges)


@wanbench_style()
def stability(
    limits: Sequence[Limit], synchronous: Mapping[float, float], title: str, about: str, width_in: float = PAGE_IN
) -> Figure:
    """A curve per momentum, with the limits found by training as points on it.

    Args:
        limits: by momentum and delay. synchronous: momentum -> limit of ssgd, drawn as a level.
        title: the finding, and the subject. about: the caption.
    """
    looks = styles([(_name(momentum), "delayed", {}) for momentum in synchronous])
    ssgd = styles([("ssgd", "ssgd", {})])["ssgd"]
    labels = [name for momentum in synchronous for name in (_name(momentum), _ssgd(momentum))]
    height_in = max(2.5 if width_in > COLUMN_IN else 2.1, least_in(labels))
    sheet = Sheet(width_in, height_in, title, about, {}, left_in=0.55, right_in=strip_in(labels))
    axes = sheet.axes()
    axes.set_xlim(0, max(limit.delay for limit in limits) + 1)
    axes.set_xticks(_TICKS)
    everything = [*(limit.computed for limit in limits), *synchronous.values()]
    logarithmic(axes.yaxis, min(everything) / 1.5, max(everything) * 1.5)
    axes.set_xlabel("delay D (steps)")
    axes.set_ylabel("largest stable lr × curvature")
    ends = []
    for momentum, level in synchronous.items():
        look, mine = looks[_name(momentum)], [limit for limit in limits if limit.momentum == momentum]
        axes.plot([limit.delay for limit in mine], [limit.computed for limit in mine], color=look.colour, linewidth=0.8)
        _found(axes, mine, look)
        dotted: dict[str, Any] = {"color": ssgd.colour, "linestyle": (0, (1, 2)), "linewidth": 0.9}
        axes.axhline(level, **dotted)
        ends.append(
            End(
                _name(momentum),
                {**point(look), "linestyle": "-", "linewidth": 0.8},
                mine[-1].delay,
                mine[-1].computed,
                f"{mine[-1].computed:.3g}",
            )
        )
        ends.append(End(_ssgd(momentum), dotted, axes.get_xlim()[1], level, f"{level:g}"))
    label_ends(axes, ends, sheet.axes_in)
    return sheet.figure


def _found(axes: Axes, limits: Sequence[Limit], look: Style) -> None:
    for limit in limits:
        if limit.found is not None:
            axes.plot([limit.delay], [limit.found], zorder=4, **point(look))
            note(axes, limit.delay, limit.found, f"momentum {limit.momentum:g}, D = {limit.delay}: {limit.found:.4f}")


def _name(momentum: float) -> str:
    return f"delayed, momentum {momentum:g}"


def _ssgd(momentum: float) -> str:
    return f"ssgd, momentum {momentum:g}"


def points(limits: Sequence[Limit], synchronous: Mapping[float, float]) -> list[dict[str, Any]]:
    """The limits as CSV rows; ssgd has no delay and was not trained here."""
    levels = [
        {"algorithm": "ssgd", "momentum": momentum, "delay_steps": 0, "computed_limit": level}
        for momentum, level in synchronous.items()
    ]
    delayed = [
        {
            "algorithm": "delayed",
            "momentum": limit.momentum,
            "delay_steps": limit.delay,
            "computed_limit": limit.computed,
            "converges_at": limit.converges,
            "diverges_at": limit.diverges,
        }
        for limit in limits
    ]
    return [*levels, *delayed]
