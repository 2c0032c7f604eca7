"""The maps for ResNet-50 on four workers by all recordings, and as if it learned like `mnist-cnn`.

    python benchmarks/map.py [--out build/map] [--points 12] [--record]

Winners near borders are emulated. A point is near a border if the best setting is another one at the next round trip or
the next rate of the grid, 11 % and 19 % away. There the map's setting is emulated beside the first three of the
simulated clock, without those that are over 1.5 times slower there. The map is right if its setting is the fastest to
the target of the emulated ones, or within 3 % of it. PowerSGD is left out: it needs the tensors at full size, which the
processors of one host compress too slowly for four workers. What is finished is kept. --record stores the maps for
`wanbench figures --paper map`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.advise.evidence import Library  # noqa: E402
from wanbench.harness.advise.map import draw_up  # noqa: E402
from wanbench.harness.advise.question import Limits, Question, ask  # noqa: E402
from wanbench.harness.advise.ranking import one_of_each, ranked  # noqa: E402
from wanbench.harness.advise.search import Options, emulate, search  # noqa: E402
from wanbench.harness.errors import WanbenchError  # noqa: E402
from wanbench.harness.show.figures.map import MapData, store_map  # noqa: E402

_WORKLOAD, _WORKERS = "resnet50-v100", 4
_RTTS_MS, _RATES_MBIT = (1.0, 400.0), (10.0, 10_000.0)
_EQUAL, _NEAR = 1.03, 1.5
_LEFT_OUT = "ssgd-powersgd"
_SEED = "map"
_EVIDENCE: Mapping[str, tuple[str, ...]] = {"resnet50": (), "resnet50-like-mnist-cnn": ("mnist",)}


def question_at(rtt_ms: float, mbit: float) -> Question:
    """The question on a uniform network."""
    network = {
        "profile": "uniform",
        "rtt": f"{rtt_ms:.4g}ms",
        "rate": f"{mbit:.4g}Mbit",
        "tcp": {"congestion": "cubic"},
    }
    return ask(network, _WORKLOAD, _WORKERS, Limits())


class Point(NamedTuple):
    """A network of the map, and the best setting there."""

    rtt_ms: float
    mbit: float
    name: str


def near_borders(drawn: MapData) -> list[Point]:
    """The points whose neighbour in any direction has another best setting, if both can be emulated."""
    width, height = len(drawn.rtts_ms), len(drawn.mbits)

    def name(column: int, row: int) -> str:
        return drawn.names[row][column]

    return [
        Point(drawn.rtts_ms[column], drawn.mbits[row], name(column, row))
        for row in range(height)
        for column in range(width)
        if any(
            name(other, line) != name(column, row) and _LEFT_OUT not in (name(other, line), name(column, row))
            for other, line in ((column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1))
            if 0 <= other < width and 0 <= line < height
        )
    ]


def check(point: Point, library: Library, out: Path) -> dict[str, Any]:
    """Emulate the best settings at a point. Return a line of the table."""
    question = question_at(point.rtt_ms, point.mbit)
    options = Options(out, 0, say=lambda _: None)
    found = search(question, library, options)
    chosen = one_of_each(found.advisable)
    near_s = _NEAR * chosen[0].to_target_s
    first = [each for each in chosen if each.name != _LEFT_OUT and each.to_target_s <= near_s][:3]
    if all(each.name != point.name for each in first):
        first += [each for each in found.simulated if each.name == point.name]
    emulated = emulate(question, first, None, options)
    line: dict[str, Any] = {"rtt_ms": round(point.rtt_ms, 3), "rate_mbit": round(point.mbit, 3), "map": point.name}
    mine = next((each for each in emulated.measured if each.name == point.name), None)
    if mine is None:
        return line | {"emulated": None, "slower_pct": None, "scale": None, "why_not": emulated.why_not or "not valid"}
    best = min(emulated.measured, key=lambda each: each.to_target_s)
    slower = mine.to_target_s / best.to_target_s
    compared = "; ".join(f"{each.name} {each.to_target_s:.4f} s" for each in ranked(emulated.measured))
    return line | {
        "emulated": best.name,
        "slower_pct": round(100 * (slower - 1), 2),
        "scale": emulated.scale,
        "why_not": "",
        "to_target_per_step_of_ssgd": compared,
    }


def main() -> None:
    """Draw the maps, check them, and write all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "map", help="folder of the measurements")
    parser.add_argument("--record", action="store_true", help="store maps and tables in results/reference")
    parser.add_argument("--points", type=int, default=12)
    asked = parser.parse_args()
    for figure, proxies in _EVIDENCE.items():
        to = (ROOT / "results" / "reference" if asked.record else asked.out) / f"map-{figure}"
        draw_and_check(proxies, asked.points, asked.out, to)


def draw_and_check(proxies: Sequence[str], points: int, out: Path, to: Path) -> None:
    """Draw the map by the recordings of some designs, or of all, and check it near its borders.

    Args:
        out: folder of the measurements. to: of the map and its table.
    """
    library = Library.for_question(question_at(20, 1000), proxies, out)
    drawn = draw_up(question_at(20, 1000), library, _RTTS_MS, _RATES_MBIT, Options(out), marked=False)
    borders = near_borders(drawn)
    lines = []
    for point in Random(_SEED).sample(borders, min(points, len(borders))):
        try:
            lines.append(check(point, library, out))
        except WanbenchError as error:
            raise SystemExit(f"{point.rtt_ms:.3g} ms, {point.mbit:.3g} Mbit/s: {error}") from None
        print(*lines[-1].values(), flush=True)
    valid = [_mark(line) for line in lines if line["emulated"]]
    marks = (
        f" Marks: emulated beside the first three of the simulation, without PowerSGD, at {len(valid)} networks near "
    )
    marks += "borders" + (f"; {len(lines) - len(valid)} more were not valid." if len(valid) < len(lines) else ".")
    store_map(replace(drawn, checks=valid, caption=drawn.caption + (marks if lines else "")), to)
    if lines:
        with (to / "checks.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list({name: None for line in lines for name in line}))
            table.writeheader()
            table.writerows(lines)
        right = sum(mark[2] for mark in map(_mark, lines))
        print(f"{right} of {len(lines)} emulated winners are the map's, or within 3 % of it")


def _mark(line: Mapping[str, Any]) -> tuple[float, float, bool]:
    right = line["slower_pct"] is not None and line["slower_pct"] <= 100 * (_EQUAL - 1)
    return line["rtt_ms"], line["rate_mbit"], right


if __name__ == "__main__":
    main()
