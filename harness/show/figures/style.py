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

# Markers of further parameters of a family.
_SHAPES: tuple[Any, ...] = ("v", "8", "X", "P", "h", "*", "<", ">", "p", "^", "s")
# The sizes that papers use come first and never share a look.
_KNOWN_SIZES = (4, 20, 8, 12, 2, 16)


@dataclass(frozen=True)
class Style:
    """The look of one algorithm.

    Attributes:
        colour: of line, marker and bar. marker: its shape. above: whether it is small, and drawn above others.
        simulated: open and dashed.
    """

    colour: str
    marker: Any
    above: bool
    simulated: bool

    @property
    def dashes(self) -> Any:
        """The pattern of a line."""
        return SIMULATED if self.simulated else "-"


def styles(algorithms: Sequence[tuple[str, str, Mapping[str, Any]]], network: str = "emulated") -> dict[str, Style]:
    """The look of every (label, kind, params), on a network that is "emulated", "simulated" or both (`provenance`).

    A look depends on kind and parameters alone. If two would have the same marker, the later one takes the next that
    is free.
    """
    chosen: dict[str, Style] = {}
    for label, kind, params in algorithms:
        built_in = BUILT_IN.get(kind)
        colour, marker = built_in[2:4] if built_in else _OTHERS[zlib.crc32(kind.encode()) % len(_OTHERS)]
        variant = _variant(params)
        colour = _shade(colour, variant)
        begin = (variant + (list(BUILT_IN).index(kind) if built_in else 0)) % len(_SHAPES)
        shapes = [*([] if variant else [marker]), *_SHAPES[begin:], *_SHAPES[:begin]]
        taken = {look.marker for look in chosen.values()}
        shape = next((shape for shape in shapes if shape not in taken), shapes[0])
        chosen[label] = Style(colour, shape, variant == 0, network == "simulated")
    return chosen


def as_line(look: Style) -> dict[str, Any]:
    """The look as a curve."""
    # Those below are larger: they show around the marker of a curve that coincides, as several do at 1.
    return point(look) | {
        "linestyle": look.dashes,
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


def _shade(colour: str, variant: int) -> str:
    """The colour itself, darker or lighter."""
    other, share = ((0.0, 0.0), (0.0, 0.4), (1.0, 0.35))[variant % 3]
    red, green, blue = ((1 - share) * part + share * other for part in to_rgb(colour))
    return to_hex((red, green, blue)).upper()


def _variant(params: Mapping[str, Any]) -> int:
    delay, period = params.get("delay", params.get("staleness")), params.get("period")
    sizes = [_KNOWN_SIZES.index(size) if size in _KNOWN_SIZES else int(size) for size in (delay, period) if size]
    if not sizes:
        return 0 if not params else zlib.crc32(repr(sorted(params.items())).encode()) % len(_SHAPES)
    return sum(weight * size for weight, size in enumerate(sizes, start=1)) % len(_SHAPES)


@contextmanager
def wanbench_style() -> Iterator[None]:
    """matplotlib with our style alone: a user's matplotlibrc changes nothing, and nothing is changed for the user."""
    own = matplotlib.rc_params_from_file(Path(__file__).with_name("wanbench.mplstyle"), use_default_template=False)
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context({**defaults, **own}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # of a name: it is drawn as a box
        yield
