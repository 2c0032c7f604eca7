"""Measure how far each collective is from the limit of its network, one factor at a time, on emulated links.

    python benchmarks/collectives.py [--out build/collectives] [--only "10.2 MB"] [--collectives direct,gloo]
    python benchmarks/collectives.py --draw     draws what is recorded again

The middle is 4 workers, 10.2 MB, RTT 100 ms, 100 Mbit/s, Reno, no loss; each line changes one value. `limit` is the
time of two phases, max(T + RTT/2, T/2 + RTT) with T = 2 (N-1)/N bytes with headers / rate, or of one-shot,
(N-1) bytes with headers / rate + RTT/2, whichever is shorter; N are the sites, of which each has one link. It
leaves out losses, and is the same for every number of connections. Every point is also simulated. What takes over a
minute, and what this host cannot emulate, is only simulated.

`direct-16` has 16 connections for each pair of workers; `ring-ranks` keeps the order of ranks. What is measured is
kept, so the same command continues where it stopped; the simulation runs anew. The table is also in collectives.csv,
and drawn.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "results" / "reference" / "collectives"
sys.path.insert(0, str(ROOT))

from wanbench.harness.api import run  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402
from wanbench.harness.show.figures.drawing import save  # noqa: E402
from wanbench.harness.show.figures.layout import Sheet, logarithmic  # noqa: E402
from wanbench.harness.show.figures.style import FAINT, PAGE_IN, wanbench_style  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402

_MIDDLE: dict[str, Any] = {
    "workers": 4,
    "mb": 10.2,
    "rtt_ms": 100,
    "mbit": 100,
    "loss": 0.0,
    "tcp": "reno",
    "sites": None,
    "buffer_ms": None,
    "far_ms": None,
    "messages": 1,
}
_SMALL = {"mb": 2.04, "mbit": 20}  # as long on the wire, and less work for this host
_POINTS: tuple[dict[str, Any], ...] = (
    {}, {"messages": 8}, {"workers": 2}, {"workers": 8, **_SMALL}, {"workers": 8, "sites": 4, **_SMALL},
    {"workers": 16, "sites": 4, **_SMALL},
    {"mb": 0.004}, {"mb": 1.02}, {"mb": 102}, {"rtt_ms": 10}, {"rtt_ms": 300}, {"mbit": 1000},
    {"mb": 102, "mbit": 1000}, {"tcp": "cubic"}, {"tcp": "bbr"}, {"buffer_ms": 5}, {"buffer_ms": 200}, {"far_ms": 400},
    {"mb": 1.02, "far_ms": 400}, {"loss": 0.1}, {"mb": 1.02, "loss": 0.1},
)  # fmt: skip
_STEP_S = 0.05
_STEPS = 8
_WARM_UP = 3  # rounds, about
_LONGEST_S = 60.0
_WIRE = 1500 / 1448
_LOOKS = {
    "direct": ("#222222", "o"), "direct-4": ("#777777", "^"), "direct-16": ("#BBBBBB", "v"), "gloo": ("#4477AA", "s"),
    "hierarchical": ("#228833", "P"), "ring": ("#EE6677", "p"), "ring-ranks": ("#CCBB44", "X"),
}  # fmt: skip


def points() -> Iterator[dict[str, Any]]:
    """Yield the middle, and then the points around it."""
    for change in _POINTS:
        yield {**_MIDDLE, **change}


def collectives_of(point: Mapping[str, Any]) -> list[str]:
    """The collectives whose time can differ at a point."""
    names = ["direct", "gloo"]
    if not (point["messages"] > 1 or point["loss"] or point["buffer_ms"] or point["tcp"] != "reno"):
        names.append("ring")
    if point["sites"]:
        names.append("hierarchical")
    if point["far_ms"]:
        names.append("ring-ranks")
    if point["loss"] or point == _MIDDLE or point["rtt_ms"] == 300:
        names += ["direct-4", "direct-16"]
    return names


def limit_s(point: Mapping[str, Any]) -> float:
    """The shortest possible time of an all-reduce in seconds: see the module's docstring."""
    n: int = point["sites"] or point["workers"]
    rtt_s: float = point["rtt_ms"] / 1e3
    one_vector_s: float = point["mb"] * 1e6 / (point["mbit"] * 1e6 / 8 / _WIRE)
    pieces_s = 2 * (n - 1) / n * one_vector_s
    return min(max(pieces_s + rtt_s / 2, pieces_s / 2 + rtt_s), (n - 1) * one_vector_s + rtt_s / 2)


def title(point: Mapping[str, Any]) -> str:
    """Name a point by all its values."""
    sites = f" in {point['sites']} sites" if point["sites"] else ""
    values = (f"N={point['workers']}{sites}", f"{point['mb']:g} MB", f"{point['rtt_ms']} ms", f"{point['mbit']} Mbit/s")
    return ", ".join((*values, point["tcp"], *_extras(point)))


def _extras(point: Mapping[str, Any]) -> list[str]:
    named = (("loss", "%"), ("buffer_ms", " ms"), ("far_ms", " ms"))
    messages = [f"{point['messages']} messages at once"] if point["messages"] > 1 else []
    return messages + [f"{name.partition('_')[0]} {point[name]:g}{unit}" for name, unit in named if point[name]]


def change(point: Mapping[str, Any]) -> str:
    """Name a point by what differs from the middle."""
    units = {"mb": "{:g} MB", "rtt_ms": "RTT {} ms", "mbit": "{:g} Mbit/s", "tcp": "{}"}
    usual = _MIDDLE if point["workers"] < 8 else {**_MIDDLE, **_SMALL}
    changed = [text.format(point[name]) for name, text in units.items() if point[name] != usual[name]]
    if point["workers"] != 4:
        changed.append(f"{point['workers']} workers" + (f" in {point['sites']} sites" if point["sites"] else ""))
    far = [f"one path of {point['far_ms']} ms" if text.startswith("far") else text for text in _extras(point)]
    return ", ".join(changed + far) or "the middle"


def profile_of(point: Mapping[str, Any], folder: Path) -> Path:
    """Write a network: a link for each site, or a queue with a stated buffer for each path; the first may be far."""
    names = [f"site{index}" for index in range(point["sites"] or point["workers"])]
    lines = ["src,dst,rtt_ms,loss_pct,rate_mbps,buffer,up_mbps,down_mbps"]
    queue = ","
    if point["buffer_ms"]:
        mbit = point["mbit"] / (len(names) - 1)
        queue = f"{mbit:.4f},{int(mbit * 125 * point['buffer_ms'])}B"
    else:
        lines += [f"{name},,,,,,{point['mbit']},{point['mbit']}" for name in names]
    for a, b in combinations(names, 2):
        rtt_ms = point["far_ms"] if point["far_ms"] and (a, b) == (names[0], names[1]) else point["rtt_ms"]
        lines.append(f"{a},{b},{rtt_ms},{point['loss']},{queue},,")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_slug(point)}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def _slug(point: Mapping[str, Any]) -> str:
    name = title(point).lower().replace("%", "pct")
    return "".join(letter for letter in name.replace(", ", "-") if letter.isalnum() or letter in "-.")


def spec_of(point: Mapping[str, Any], collective: str, out: Path) -> Spec:
    """The experiment of a point: synchronous SGD whose gradient is one message."""
    name, _, option = collective.partition("-")
    options = {"channels": int(option)} if option.isdecimal() else {"ring_order": option} if option else {}
    buckets = "1GiB" if point["messages"] == 1 else f"{int(point['mb'] * 1e6) // point['messages']}B"
    return Spec.from_dict(
        {
            "schema": 1,
            "name": f"{collective}-{_slug(point)}",
            "workload": {
                "params": int(point["mb"] * 250_000),
                "tensors": 2 * point["messages"],
                "step_time": "50ms",
                "step_cv": 0.0,
            },
            "network": {
                "profile": str(profile_of(point, out / "networks")),
                "place": "blocked",
                "tcp": {"congestion": point["tcp"], "slow_start_after_idle": False},
            },
            "comm": {"collective": name, "buckets": buckets, **options},
            "algorithms": {"ssgd": {}},
            "sweep": {"workers": [point["workers"]]},
            "run": {"repeats": 1, "window": f"{_STEPS} steps"},
        }
    )


def line(point: Mapping[str, Any], collective: str, out: Path, *, kept: bool) -> dict[str, Any]:
    """Simulate a point, and measure it unless it was before, or not if `kept`. Return its line of the table."""
    spec = spec_of(point, collective, out)
    limit = limit_s(point)
    simulated = _row(_measured(spec, out / "virtual", "virtual"))
    seconds = (_STEPS + _WARM_UP) * max(limit, (simulated["step_time_s"] if simulated else 0) - _STEP_S)
    emulated, before = None, out / "netns" / spec.name
    if kept and before.exists():
        emulated = _row(RunFolder(before).rows())
    elif not kept and seconds <= _LONGEST_S:
        emulated = _row(_measured(spec, out / "netns", "netns"))
    times = [row and row["step_time_s"] and row["step_time_s"] - _STEP_S for row in (emulated, simulated)]
    took = times[1] if emulated is None or emulated["status"] != "ok" else times[0]
    law = (simulated or emulated or {}).get("predicted_step_time_s")
    return {
        "point": title(point),
        "change": change(point),
        "collective": collective,
        "emulated_s": times[0],
        "simulated_s": times[1],
        "limit_s": limit,
        "over": took / limit if took else None,
        "law_s": law and law - _STEP_S,
        "retransmits": emulated and emulated["retransmits"],
        "status": emulated["status"] if emulated else "simulated",
    }


def _measured(spec: Spec, out: Path, testbed: str) -> Sequence[Mapping[str, Any]]:
    emulated = testbed == "netns"
    return run(spec, testbed=testbed, out=out, jobs=1, figures=False, fresh=not emulated, keep=emulated).rows()


def _row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next(iter(row for row in rows if row["workers"] > 1), None)


def printed(line: Mapping[str, Any]) -> str:
    """A line of the table on the terminal."""
    numbers = [line[name] for name in ("emulated_s", "simulated_s", "limit_s", "over", "law_s")]
    shown = "".join(f"{'-' if number is None else format(number, '.3f'):>10}" for number in numbers)
    return f"{line['point']:50} {line['collective']:13}{shown} {line['retransmits']!s:>8}  {line['status']}"


@wanbench_style()
def drawing(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """One line per point: how many times the limit each collective takes; hollow if only simulated."""
    shown = [line for line in lines if line["over"]]
    rows = [*dict.fromkeys(line["change"] for line in shown)][::-1]
    entries = {
        name: Line2D([], [], color=colour, marker=marker, linestyle="")
        for name, (colour, marker) in _LOOKS.items()
        if any(line["collective"] == name for line in shown)
    }
    entries["hollow: simulated"] = Line2D([], [], color=FAINT, marker="o", fillstyle="none", linestyle="")
    emulated = [line for line in shown if line["status"] == "ok" and "loss" not in line["change"]]
    ours = [line for line in emulated if line["collective"] != "gloo"]
    best = [min(line["over"] for line in ours if line["change"] == row) for row in {line["change"] for line in ours}]
    gloo = [line["over"] for line in emulated if line["collective"] == "gloo"]
    sheet = Sheet(
        PAGE_IN,
        0.17 * len(rows),
        f"Without loss, the best collective takes {min(best):.2f} to {max(best):.2f} times the limit, gloo "
        f"{min(gloo):.1f} to {max(gloo):.1f} times\n"
        "Time of an all-reduce over the limit of the network without loss; one factor changed at a time",
        "The middle: 4 workers, 10.2 MB, RTT 100 ms, 100 Mbit/s for each worker, Reno, no loss. With 8 and 16 "
        "workers 2.04 MB at 20 Mbit/s. Emulated in network namespaces, 8 steps each. Of several workers in a site the "
        "limit sends one vector. Points of a row have one limit. direct-4 and direct-16: connections for "
        "each pair of workers. ring-ranks: in the order of ranks. Title: emulated points only.",
        entries,
        left_in=1.6,
    )
    axes = sheet.axes()
    for line in shown:
        colour, marker = _LOOKS[line["collective"]]
        fill = "full" if line["status"] == "ok" else "none"
        axes.plot(line["over"], rows.index(line["change"]), color=colour, marker=marker, fillstyle=fill, linestyle="")
    axes.axvline(1, color=FAINT, linewidth=0.5)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(visible=True, axis="y")
    logarithmic(axes.xaxis, 0.85, 1.15 * max(line["over"] for line in shown))
    axes.set_xlabel("time over the limit")
    return sheet.figure


def main() -> None:
    """Print one line for each point and collective."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "build/collectives"), help="folder of the measurements")
    parser.add_argument("--only", default="", help="points whose title contains this text")
    parser.add_argument("--collectives", default="", help="these collectives only, separated by commas")
    parser.add_argument("--kept", action="store_true", help="measure nothing: show what is measured, simulate the rest")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw what is recorded")
    asked = parser.parse_args()
    if asked.draw:
        draw(RECORDED)
        return
    out = Path(asked.out)
    lines = []
    for point in points():
        if asked.only in title(point):
            for collective in asked.collectives.split(",") if asked.collectives else collectives_of(point):
                lines.append(line(point, collective, out, kept=asked.kept))
                print(printed(lines[-1]), flush=True)
    with (out / "collectives.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    if any(line["status"] == "ok" for line in lines):
        draw(out)


def draw(folder: Path) -> None:
    """Draw the table of a folder, in the folder."""
    with (folder / "collectives.csv").open(newline="") as file:
        lines = [{**line, "over": line["over"] and float(line["over"])} for line in csv.DictReader(file)]
    for ending in ("svg", "png"):
        print(save(drawing(lines), folder / f"collectives.{ending}"))


if __name__ == "__main__":
    main()
