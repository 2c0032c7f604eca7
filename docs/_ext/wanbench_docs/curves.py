"""The recorded curve of an algorithm as inline SVG, which takes the colours of the page, light or dark."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[3] / "results" / "reference"
NONE = "No run of this algorithm is recorded."
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 250, 36, 108, 20, 42
_LABEL_GAP = 14

Row = Mapping[str, Any]
Curves = dict[str, dict[float, float]]


@dataclass(frozen=True)
class Recorded:
    """A recorded run and its curves.

    Attributes:
        run: folder in results/reference.
        x: of a row. A row without x is on no curve. y: a column.
        x_name, y_name: of the axes.
        ticks: of the y axis, which ends at the first and the last.
        conditions: for the caption.
        curve: the column whose values are the curves.
    """

    run: str
    x: Callable[[Row], float | None]
    y: str
    x_name: str
    y_name: str
    ticks: tuple[float, ...]
    conditions: str
    curve: str = "algorithm"


def _staleness(row: Row) -> float | None:
    """Return the staleness in rounds of p = 4 steps, for rows without compression."""
    fixed = {"localsgd-p4": 0.0, "cocod-p4": 1.0}
    found = re.fullmatch(r"olco3-s(\d+)-p4", row["algorithm"])
    return float(found[1]) if found else fixed.get(row["algorithm"])


_DISTANCE = Recorded(
    "latency-sweep", itemgetter("rtt_ms"), "scalability", "round-trip time, ms", "scalability",
    (0, 0.25, 0.5, 0.75, 1),
    "Emulated, one repetition per cell. Four workers, ResNet-50 at 300 ms per step, messages and rates x 0.01",
)  # fmt: skip
_STALENESS = Recorded(
    "olco3-delay", _staleness, "scalability", "staleness, rounds of 4 steps", "scalability",
    (0, 0.25, 0.5, 0.75, 1),
    "Simulated. Eight workers that train digits-cnn at a round-trip time of 400 ms, without compression", "kind",
)  # fmt: skip
_LOSS = Recorded(
    "rps-loss", itemgetter("loss_pct"), "accuracy", "packet loss, %", "accuracy",
    (0.96, 0.97, 0.98, 0.99, 1),
    "Simulated. Four workers that train digits-cnn at a round-trip time of 20 ms",
)  # fmt: skip
_NODES = Recorded(
    "sgp-nodes", itemgetter("workers"), "step_time_s", "workers", "step time, s",
    (0, 0.5, 1, 1.5),
    "Simulated on profile sgp-poster, whose all-reduce times are fitted. ResNet-50 with stragglers",
)  # fmt: skip
_FAILURES = Recorded(
    "failures", itemgetter("mtbf_s"), "goodput", "time between failures of a machine, s", "goodput",
    (0, 0.25, 0.5, 0.75, 1),
    "Simulated. Eight workers on world4 that fail and return after 30 s, on average",
)  # fmt: skip
RUNS: Mapping[str, Recorded] = {
    **dict.fromkeys(("ssgd", "delayed", "sparse", "dts"), _DISTANCE),
    **dict.fromkeys(("localsgd", "cocod", "olco3"), _STALENESS),
    **dict.fromkeys(("rps", "gradient-sharing"), _LOSS),
    **dict.fromkeys(("sgp", "osgp", "dpsgd", "adpsgd"), _NODES),
    "diloco": _FAILURES,
}


def of_curve(kind: str) -> str:
    """Return the recorded curve of an algorithm with its caption, or the sentence that there is none."""
    recorded = RUNS.get(kind)
    if recorded is None:
        return f"{NONE}\n"
    curves = _curves(recorded)
    own = {label for label in curves if label == kind or label.startswith(f"{kind}-")}
    drawing = "".join(_drawing(recorded, curves, own))
    others = ", ".join(f"`{label}`" for label in curves if label not in own)
    return (
        f"```{{raw}} html\n{drawing}\n```\n\n{recorded.conditions}. Points are medians of the recorded run "
        f"`results/reference/{recorded.run}`. Grey: {others}.\n"
    )


def _curves(recorded: Recorded) -> Curves:
    """Return the median at every x, for each curve."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in (RECORDED / recorded.run / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["status"] == "ok" and row["workers"] > 1 and recorded.x(row) is not None:
            found[row[recorded.curve]][recorded.x(row)].append(row[recorded.y])
    return {
        label: {x: statistics.median(ys) for x, ys in sorted(points.items())} for label, points in sorted(found.items())
    }


def _drawing(recorded: Recorded, curves: Curves, own: set[str]) -> Iterator[str]:
    """Yield the parts of the SVG. The recorded values of x are spaced evenly."""
    xs = sorted({x for curve in curves.values() for x in curve})
    low, high = recorded.ticks[0], recorded.ticks[-1]
    across = {x: _LEFT + i * (_WIDTH - _LEFT - _RIGHT) / max(1, len(xs) - 1) for i, x in enumerate(xs)}

    def height(y: float) -> float:
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    title = f"{recorded.y_name} against {recorded.x_name}: {', '.join(sorted(own))}"
    yield f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
    for tick in recorded.ticks:
        y = height(tick)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.2f}</text>'
    for x, at in across.items():
        yield f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{recorded.x_name}</text>'
    for label in sorted(curves, key=lambda label: label in own):
        points = [(across[x], height(y)) for x, y in curves[label].items()]
        mark = "own" if label in own else "other"
        yield f'<path class="{mark}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'
        yield from (f'<circle class="{mark}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    yield from _labels({label: height(list(curves[label].values())[-1]) for label in own})
    yield f'<text class="name" x="{_LEFT}" y="10">{recorded.y_name}</text></svg>'


def _labels(ends: Mapping[str, float]) -> Iterator[str]:
    """Yield the name of each curve at its end, moved down if it would cover the one above."""
    below = 0.0
    for label, y in sorted(ends.items(), key=lambda item: (item[1], item[0])):
        below = max(y + 4, below + _LABEL_GAP)
        yield f'<text class="own" x="{_WIDTH - _RIGHT + 8}" y="{below:.1f}">{label}</text>'
