"""One table of looks: which colour, marker and line an algorithm has, in every figure of every run.

A family keeps one colour and one marker, those of its line in the registry of algorithms. Its
parameters choose the dashes and the filled part of the marker, so a greyscale print still shows both.
"""

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.typing import FillStyleType

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

# (dash pattern, filled part of the marker), by delay and period.
_VARIANTS: tuple[tuple[Any, FillStyleType], ...] = (
    ("-", "full"),
    ((0, (4, 1.5)), "none"),
    ((0, (1, 1.2)), "left"),
    ((0, (5, 1.5, 1, 1.5)), "top"),
    ((0, (2.5, 1)), "right"),
    ((0, (6, 1.5, 1, 1.5, 1, 1.5)), "bottom"),
)
# The sizes that papers use come first and never share a look.
_KNOWN_SIZES = (4, 20, 8, 12, 2, 16)


@dataclass(frozen=True)
class Style:
    """The look of one algorithm.

    Attributes:
        colour: of line, marker and bar. marker: its shape. dashes: the line's pattern.
        fill: the part of the marker that is filled.
    """

    colour: str
    marker: Any
    dashes: Any
    fill: FillStyleType


def styles(algorithms: Sequence[tuple[str, str, Mapping[str, Any]]]) -> dict[str, Style]:
    """The look of every (label, kind, params).

    A look depends on kind and parameters alone. If two of one family would look the same, the later one takes
    the family's next free look.
    """
    chosen: dict[str, Style] = {}
    taken: set[tuple[str, Any, int]] = set()
    for label, kind, params in algorithms:
        built_in = BUILT_IN.get(kind)
        colour, marker = built_in[2:4] if built_in else _OTHERS[zlib.crc32(kind.encode()) % len(_OTHERS)]
        preferred = _variant(params)
        for step in range(len(_VARIANTS)):
            variant = (preferred + step) % len(_VARIANTS)
            if (colour, marker, variant) not in taken:
                break
        taken.add((colour, marker, variant))
        chosen[label] = Style(colour, marker, *_VARIANTS[variant])
    return chosen


def as_line(look: Style) -> dict[str, Any]:
    """The look as a curve."""
    # Hollow markers are larger: they show around the marker of a curve that coincides, as several do at 1.
    size = {"full": 3.8, "none": 6.2}.get(look.fill, 5.0)
    return {
        "color": look.colour,
        "linestyle": look.dashes,
        "marker": look.marker,
        "fillstyle": look.fill,
        "markersize": size,
        "markeredgewidth": 0.5 if look.fill == "full" else 0.9,
    }


def point(look: Style) -> dict[str, Any]:
    """The look as a single marker."""
    return {
        "linestyle": "",
        "marker": look.marker,
        "color": look.colour,
        "fillstyle": look.fill,
        "markersize": 4.5,
        "markeredgewidth": 0.8,
    }


def looks_of(pivot: Pivot) -> dict[str, Style]:
    """The look of every algorithm of a pivot, in the order of tables."""
    lines = {label: line for (label, _), line in pivot.lines.items()}
    return styles([(label, lines[label]["kind"], lines[label]["params"] or {}) for label in pivot.algorithms])


def _variant(params: Mapping[str, Any]) -> int:
    delay, period = params.get("delay", params.get("staleness")), params.get("period")
    sizes = [_KNOWN_SIZES.index(size) if size in _KNOWN_SIZES else int(size) for size in (delay, period) if size]
    if not sizes:
        return 0 if not params else zlib.crc32(repr(sorted(params.items())).encode()) % len(_VARIANTS)
    return sum(weight * size for weight, size in enumerate(sizes, start=1)) % len(_VARIANTS)


@contextmanager
def wanbench_style() -> Iterator[None]:
    """matplotlib with our style alone: a user's matplotlibrc changes nothing, and nothing is changed for the user."""
    own = matplotlib.rc_params_from_file(Path(__file__).with_name("wanbench.mplstyle"), use_default_template=False)
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context({**defaults, **own}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # of a name: it is drawn as a box
        yield
