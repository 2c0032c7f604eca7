"""One table of looks: which colour, marker and line an algorithm has, in every figure of every run.

A family keeps the colour of its line in the registry of algorithms, in shades, and with its smallest parameters the
marker of that line. What is emulated is filled and solid, what is simulated is open and dashed, and only a published
value is a diamond. So a greyscale print shows which is which.
"""

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.colors import to_hex, to_rgb

from wanbench.harness.analysis.summary import Pivot
from wanbench.workloads.algorithms.registry import BUILT_IN

COLUMN_IN, PAGE_IN = 3.3, 6.3
INK, FAINT = "#222222", "#5F5F5F"

# A value that a paper printed, beside ours.
PUBLISHED: dict[str, Any] = {
    "marker": "D", "color": INK, "fillstyle": "none", "linestyle": "", "markersize": 5, "markeredgewidth": 0.9,
}  # fmt: skip

# For kinds that users bring: any of these, chosen by name.
_OTHERS = (
    ("#AA3377", (3, 0, 30)),
    ("#66CCEE", (5, 1, 180)),
    ("#CCBB44", (3, 0, -30)),
    ("#777777", (7, 1, 0)),
    ("#4477AA", (7, 0, 0)),
)

SIMULATED = (0, (4, 1.5))
"""The dashes of what is simulated."""

# Markers of further settings of a family.
_SHAPES: tuple[Any, ...] = (
    "v", "X", "P", "h", "*", "<", ">", "p", "^", "s", (3, 1, 0), (6, 1, 0), (5, 0, 180), (3, 1, 180), (5, 1, 180),
)  # fmt: skip
# (grey that is mixed with the colour of a family, its share, width of a line in points)
_SHADES = ((0, 0.0, 1.2), (1, 0.55, 1.7), (0, 0.45, 1.2), (0, 0.28, 1.2), (1, 0.45, 1.7), (1, 0.4, 1.7), (1, 0.3, 1.7))
# The sizes that papers use come first and never share a look.
_KNOWN_SIZES = (4, 20, 8, 12, 2, 16, 10, 5, 1, 0)
# Weights of delay, period and compression in the number of a setting, and of number and family in the choice of its
# marker. With them no two settings of a recorded figure have the same one.
_OF_DELAY, _OF_PERIOD, _OF_COMPRESSION, _OF_NUMBER, _OF_KIND = 2, 3, 6, 4, 2


@dataclass(frozen=True)
class Style:
    """The look of one algorithm.

    Attributes:
        colour: of line, marker and bar. marker: its shape. above: whether it is small, and drawn above others.
        simulated: open and dashed. width: of a line, in points.
    """

    colour: str
    marker: Any
    above: bool
    simulated: bool
    width: float = 1.2

    @property
    def dashes(self) -> Any:
        """The pattern of a line."""
        return SIMULATED if self.simulated else "-"


def styles(algorithms: Sequence[tuple[str, str, Mapping[str, Any]]], network: str = "emulated") -> dict[str, Style]:
    """The look of every (label, kind, params), on a network that is "emulated", "simulated" or both (`provenance`).

    A look depends on kind and parameters alone, the same in every figure. Only if two of a figure would have the same
    marker, the later one takes the next that is free.
    """
    chosen: dict[str, Style] = {}
    for label, kind, params in algorithms:
        built_in = BUILT_IN.get(kind)
        colour, marker = built_in[2:4] if built_in else _OTHERS[zlib.crc32(kind.encode()) % len(_OTHERS)]
        number = _number(params)
        grey, share, width = _SHADES[number % len(_SHADES)]
        share *= min(1.0, 1.6 - 1.6 * grey * sum(to_rgb(colour)) / 3)  # what is light already is still seen
        red, green, blue = ((1 - share) * part + share * grey for part in to_rgb(colour))
        begin = (_OF_NUMBER * number + _OF_KIND * (list(BUILT_IN).index(kind) if built_in else 0)) % len(_SHAPES)
        shapes = [*([] if number else [marker]), *_SHAPES[begin:], *_SHAPES[:begin]]
        taken = {look.marker for look in chosen.values()}
        shape = next((shape for shape in shapes if shape not in taken), shapes[0])
        shade = to_hex((red, green, blue)).upper()
        chosen[label] = Style(shade, shape, number == 0, network == "simulated", width)
    return chosen


def as_line(look: Style) -> dict[str, Any]:
    """The look as a curve."""
    # Those below are larger: they show around the marker of a curve that coincides, as several do at 1.
    return point(look) | {
        "linestyle": look.dashes,
        "linewidth": look.width,
        "markersize": 3.8 if look.above else 5.6,
        "zorder": 5 if look.above else 4,
    }


def point(look: Style) -> dict[str, Any]:
    """The look as a single marker."""
    return {
        "linestyle": "",
        "marker": look.marker,
        "color": look.colour,
        "fillstyle": "none" if look.simulated else "full",
        "markersize": 4.5,
        "markeredgewidth": 0.8 if look.simulated else 0.4,
        "zorder": 4,
    }


def looks_of(pivot: Pivot) -> dict[str, Style]:
    """The look of every algorithm of a pivot, in the order of tables."""
    lines = {label: line for (label, _), line in pivot.lines.items()}
    algorithms = [(label, lines[label]["kind"], lines[label]["params"] or {}) for label in pivot.algorithms]
    return styles(algorithms, pivot.network)


def _number(params: Mapping[str, Any]) -> int:
    """A number for a setting, 0 for the smallest one of a family."""
    sizes = {_OF_DELAY: params.get("delay", params.get("staleness")), _OF_PERIOD: params.get("period")}
    known = [weight * _place(int(size)) for weight, size in sizes.items() if size is not None]
    packed = str(params.get("compression", "none"))
    extra = 0 if packed == "none" else _OF_COMPRESSION * (1 + zlib.crc32(packed.encode()) % 5)
    if known or not params.keys() - {"compression"}:
        return sum(known) + extra
    return zlib.crc32(repr(sorted(params.items())).encode()) % 97


def _place(size: int) -> int:
    return _KNOWN_SIZES.index(size) if size in _KNOWN_SIZES else len(_KNOWN_SIZES) + size


@contextmanager
def wanbench_style() -> Iterator[None]:
    """matplotlib with our style alone: a user's matplotlibrc changes nothing, and nothing is changed for the user."""
    own = matplotlib.rc_params_from_file(Path(__file__).with_name("wanbench.mplstyle"), use_default_template=False)
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context({**defaults, **own}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # of a name: it is drawn as a box
        yield
