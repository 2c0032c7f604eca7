"""The map of best settings over round-trip time and rate: its file, and its figure, drawn from the file alone."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from wanbench.harness.errors import SpecError
from wanbench.harness.results.disk import write_text
from wanbench.harness.show.figures.drawing import Drawing, Point, save_all
from wanbench.harness.show.figures.hover import note
from wanbench.harness.show.figures.layout import Sheet, logarithmic, text_in
from wanbench.harness.show.figures.style import INK, PAGE_IN, styles, wanbench_style

_GAINS = (1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_HATCH = "////"
MATTERS = 1.1  # a setting of unknown accuracy that is faster by less is not hatched
_TINTS = (0.75, 0.5, 0.92, 0.62, 0.35)  # of a family's colour, for its settings in turn
_LIGHT = 0.5  # 1 - the mean of a colour's red, green and blue
_NAME: Mapping[str, Any] = {
    "ha": "center", "va": "center", "fontsize": 6.5, "path_effects": [withStroke(linewidth=2, foreground="white")]
}  # fmt: skip
_MARKS: Mapping[bool, Mapping[str, Any]] = {
    True: {"marker": "o", "color": INK},
    False: {"marker": "X", "color": "#CC3311"},
}
_LABEL_SHARE = 0.04  # of all points, for a name inside its area
MAP_FILE = "map.json"
_DIGITS = 4


@dataclass(frozen=True)
class MapData:
    """What is drawn.

    Attributes:
        rtts_ms, mbits: the coordinates, ascending, at equal ratios.
        names: of the best setting at each point, shape (len(mbits), len(rtts_ms)). gains, unknown: likewise; how many
            times as fast it is as `ssgd`, and how many times as fast as it the steps of the fastest setting of unknown
            accuracy are, at least 1.
        kinds: name -> family, for the colours. words: name -> what figures call it.
        here: the user's network as (RTT in ms, Mbit/s), None without one.
        checks: emulated networks as (RTT in ms, Mbit/s, whether the map's setting is the fastest of those that were
            emulated, or within 3 %).
        subject: workload and workers. caption: the conditions, and the source of the evidence.
    """

    rtts_ms: Sequence[float]
    mbits: Sequence[float]
    names: Sequence[Sequence[str]]
    gains: Sequence[Sequence[float]]
    unknown: Sequence[Sequence[float]]
    kinds: Mapping[str, str]
    words: Mapping[str, str]
    here: tuple[float, float] | None = None
    checks: Sequence[tuple[float, float, bool]] = ()
    subject: str = ""
    caption: str = ""

    @property
    def title(self) -> str:
        """The finding, and the subject in a second line."""
        return f"{finding(self)}\n{self.subject}"

    @property
    def drawing(self) -> Drawing:
        """Its figure, and its points."""
        return Drawing("map", self.title, lambda width_in: best_map(self, width_in), self.points)

    def points(self) -> list[Point]:
        """A line for each network."""
        return [
            {
                "rtt_ms": rtt_ms,
                "rate_mbit": mbit,
                "best": self.names[row][column],
                "gain_over_ssgd": self.gains[row][column],
                "unknown_over_best": self.unknown[row][column],
            }
            for row, mbit in enumerate(self.mbits)
            for column, rtt_ms in enumerate(self.rtts_ms)
        ]


def write_map(data: MapData, folder: Path) -> list[Path]:
    """Write the file, the figure in every format and its points. Return their paths."""
    return [store_map(data, folder), *save_all(read_map(folder).drawing, folder)]


def store_map(data: MapData, folder: Path) -> Path:
    """Write the file alone."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / MAP_FILE, json.dumps(_to_json(data), separators=(",", ":"), allow_nan=False) + "\n")
    return folder / MAP_FILE


def _to_json(data: MapData) -> dict[str, Any]:
    index_of = {name: index for index, name in enumerate(data.kinds)}
    return {
        "schema": 1,
        "title": data.title,
        "caption": data.caption,
        "rtts_ms": _rounded(data.rtts_ms),
        "rates_mbit": _rounded(data.mbits),
        "settings": [{"name": name, "kind": kind, "words": data.words[name]} for name, kind in data.kinds.items()],
        "best": [[index_of[name] for name in row] for row in data.names],
        "gain_over_ssgd": [_rounded(row) for row in data.gains],
        "unknown_over_best": [_rounded(row) for row in data.unknown],
        "here": data.here,
        "checks": [[*_rounded(check[:2]), check[2]] for check in data.checks],
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def read_map(folder: Path) -> MapData:
    """Read the file of a folder.

    Raises:
        SpecError: it is missing, or is not such a file.
    """
    path = folder / MAP_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != 1:
            raise ValueError(f"schema {content['schema']}")
        names = [str(entry["name"]) for entry in content["settings"]]
        data = MapData(
            content["rtts_ms"],
            content["rates_mbit"],
            [[names[index] for index in row] for row in content["best"]],
            content["gain_over_ssgd"],
            content["unknown_over_best"],
            {str(entry["name"]): str(entry["kind"]) for entry in content["settings"]},
            {str(entry["name"]): str(entry["words"]) for entry in content["settings"]},
            None if content["here"] is None else (content["here"][0], content["here"][1]),
            [(rtt_ms, mbit, bool(same)) for rtt_ms, mbit, same in content["checks"]],
            str(content["title"]).rpartition("\n")[2],
            str(content["caption"]),
        )
        _validate(data)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); make it with `wanbench map`") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SpecError(f"{path}: not a map ({error}); make it again with `wanbench map`") from None
    return data


def _validate(data: MapData) -> None:
    """Raise ValueError for a number that is none, or for coordinates and points that do not fit each other."""
    points = [gain for row in (*data.gains, *data.unknown) for gain in row]
    marks = [value for check in data.checks for value in check[:2]]
    for value in (*data.rtts_ms, *data.mbits, *points, *marks, *(data.here or ())):
        if not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"expected positive numbers, got {value!r}")
    if min(len(data.rtts_ms), len(data.mbits)) < 2:
        raise ValueError("expected at least two round trips and two rates")
    for rows in (data.names, data.gains, data.unknown):
        if [len(row) for row in rows] != [len(data.rtts_ms)] * len(data.mbits):
            raise ValueError(f"expected {len(data.mbits)} rows of {len(data.rtts_ms)} points")


def finding(data: MapData) -> str:
    """The setting that is best at most points, on what share of them, and how fast it is at those."""
    (first, count), *_ = Counter(name for row in data.names for name in row).most_common()
    gains = [
        gain
        for names, row in zip(data.names, data.gains, strict=True)
        for name, gain in zip(names, row, strict=True)
        if name == first
    ]
    most, unknown = (float(f"{value:.3g}") for value in (max(gains), max(map(max, data.unknown))))
    if most <= 1 and count == len(data.mbits) * len(data.rtts_ms) and unknown > MATTERS:
        return (
            f"Only {data.words[first]} is known to be accurate; "
            f"a setting of unknown accuracy would be up to {unknown:g} times as fast"
        )
    text = f"{data.words[first]} is best on {_share(count, data)} of the map"
    return text if most <= 1 else f"{text}, there at most {most:g} times as fast as SSGD"


def coverage(data: MapData) -> str:
    """The share where a faster setting is not known to be accurate, and what was emulated."""
    hatched = sum(ratio > MATTERS for row in data.unknown for ratio in row)
    text = f"Hatched: {_share(hatched, data)} of the map. " if hatched else ""
    if not data.checks:
        return f"{text}Nothing is emulated."
    agree = sum(check[2] for check in data.checks)
    emulated = {
        data.names[_nearest(data.mbits, mbit)][_nearest(data.rtts_ms, rtt_ms)] for rtt_ms, mbit, _ in data.checks
    }
    never = [data.words[name] for name in data.kinds if name not in emulated]
    text += f"{agree} of {len(data.checks)} marks agree"
    return text + (f"; best somewhere, but emulated nowhere: {', '.join(never)}." if never else ".")


def _share(count: int, data: MapData) -> str:
    return f"{100 * count / (len(data.mbits) * len(data.rtts_ms)):.0f} %"


def _nearest(values: Sequence[float], value: float) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index] - value))


@wanbench_style()
def best_map(data: MapData, width_in: float = PAGE_IN) -> Figure:
    """Draw a map."""
    counts = Counter(name for row in data.names for name in row)
    colours = _colours([name for name, _ in counts.most_common()], data.kinds)
    entries: dict[str, Any] = {
        data.words[name]: Patch(facecolor=colours[name], edgecolor=INK, linewidth=0.4) for name in colours
    }
    lines: dict[str, tuple[Sequence[Sequence[float]], Literal["--", ":"]]] = {
        "times as fast as SSGD": (data.gains, "--"),
        "a setting of unknown accuracy: times as fast": (data.unknown, ":"),
    }
    lines = {text: line for text, line in lines.items() if _levels(line[0])}
    if max(map(max, data.unknown)) > MATTERS:
        entries["a faster setting is not known to be accurate"] = Patch(facecolor="none", edgecolor=INK, hatch=_HATCH)
    entries |= {text: Line2D([], [], color=INK, linewidth=0.7, linestyle=dashes) for text, (_, dashes) in lines.items()}
    if data.here is not None:
        entries["your network"] = Line2D([], [], marker="*", markersize=9, color=INK, linestyle="")
    for text, same in (("the fastest, or within 3 % of it", True), ("another is faster", False)):
        if any(check[2] == same for check in data.checks):
            entries[f"emulated: {text}"] = Line2D([], [], linestyle="", markersize=4, **_MARKS[same])
    about = f"{data.caption} {coverage(data)}"
    sheet = Sheet(width_in, 0.62 * width_in, data.title, about, entries, left_in=0.55)
    axes = sheet.axes()
    logarithmic(axes.xaxis, data.rtts_ms[0], data.rtts_ms[-1])  # before labels cut their gaps into the lines
    logarithmic(axes.yaxis, data.mbits[0], data.mbits[-1])
    names = _areas(axes, data, colours, sheet.axes_in[0])
    for values, dashes in lines.values():
        _contours(axes, data, values, dashes)
    _make_room(axes, names)
    axes.set_xlabel("round-trip time (ms)")
    axes.set_ylabel("rate of each worker (Mbit/s)")
    if data.here is not None:
        axes.plot(*data.here, marker="*", markersize=11, color=INK, markeredgecolor="white", clip_on=False, zorder=6)
        note(axes, *data.here, "your network")
    for rtt_ms, mbit, same in data.checks:
        axes.plot(rtt_ms, mbit, markersize=5, markeredgecolor="white", markeredgewidth=0.5, zorder=5, **_MARKS[same])
    return sheet.figure


def _colours(names: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """A colour for each name: tints of its family's, the most frequent name first."""
    used: Counter[str] = Counter()
    colours = {}
    for name in names:
        kind = kinds[name]
        colour = np.array(to_rgba(styles([(name, kind, {})])[name].colour))
        # Hatches and lines show on it: a dark colour is mixed with white until it is as light as the others.
        tint = _TINTS[used[kind] % len(_TINTS)] * min(1.0, _LIGHT / (1 - colour[:3].mean()))
        used[kind] += 1
        colours[name] = (*(colour[:3] * tint + (1 - tint)), 1.0)
    return colours


def _areas(axes: Axes, data: MapData, colours: Mapping[str, Any], width_in: float) -> list[Text]:
    """Draw the areas and their borders. Return the names in the large ones."""
    names = []
    order = [*colours]
    winner = np.array([[order.index(name) for name in row] for row in data.names])
    image = np.array([[colours[name] for name in row] for row in data.names])
    axes.pcolormesh(_edges(data.rtts_ms), _edges(data.mbits), image, linewidth=0, antialiased=False)
    unknown = (np.array(data.unknown) > MATTERS).astype(float)
    if unknown.any():
        axes.contourf(data.rtts_ms, data.mbits, unknown, levels=[0.5, 1.5], colors="none", hatches=[_HATCH])
    bands = np.digitize(data.gains, _GAINS) * len(_GAINS) + np.digitize(data.unknown, _GAINS)
    lines = (bands != np.roll(bands, 1, 0)) | (bands != np.roll(bands, 1, 1))
    for index, name in enumerate(order):
        area = (winner == index).astype(float)
        if area.min() < area.max():
            axes.contour(data.rtts_ms, data.mbits, area, levels=[0.5], colors=[INK], linewidths=0.8)
        if area.mean() >= _LABEL_SHARE:
            half = int(text_in(data.words[name], _NAME["fontsize"]) / width_in * len(data.rtts_ms) / 2) + 1
            row, column = _middle(area > 0, ~lines, min(half, (len(data.rtts_ms) - 1) // 2))
            names.append(axes.text(data.rtts_ms[column], data.mbits[row], data.words[name], **_NAME))
    axes.grid(visible=False)
    return names


def _levels(values: Sequence[Sequence[float]]) -> list[float]:
    return [level for level in _GAINS if np.min(values) < level < np.max(values)]


def _contours(axes: Axes, data: MapData, values: Sequence[Sequence[float]], dashes: str) -> None:
    lines = axes.contour(
        data.rtts_ms, data.mbits, values, levels=_levels(values), colors=[INK], linewidths=0.8, linestyles=dashes
    )
    for text in axes.clabel(lines, fmt="%g×", fontsize=6):
        text.set_path_effects([withStroke(linewidth=1.5, foreground="white")])


def _make_room(axes: Axes, names: Sequence[Text]) -> None:
    """Remove the labels of contours that are under a name."""
    taken = [name.get_window_extent() for name in names]
    for text in [text for text in axes.texts if text not in names]:
        if any(text.get_window_extent().overlaps(box) for box in taken):
            text.remove()


def _edges(values: Sequence[float]) -> Any:
    """The borders of cells whose middles are at equal ratios."""
    ratio = (values[1] / values[0]) ** 0.5
    return np.array([values[0] / ratio, *(value * ratio for value in values)])


def _middle(area: Any, between: Any, half: int) -> tuple[int, int]:
    """The point of an area farthest from its border, in cells; with `half` columns between lines beside it if it has
    such a point."""
    beside = np.pad(area & between, ((0, 0), (half, half)))
    free = np.lib.stride_tricks.sliding_window_view(beside, 2 * half + 1, axis=1).all(axis=-1)
    inside = np.pad(free if free.any() else area, 1)
    depth = inside.astype(int)
    while inside.any():
        inside &= np.roll(inside, 1, 0) & np.roll(inside, -1, 0) & np.roll(inside, 1, 1) & np.roll(inside, -1, 1)
        depth += inside
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row) - 1, min(max(int(column) - 1, half), area.shape[1] - 1 - half)
