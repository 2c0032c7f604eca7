"""Draw networks and workloads at random, and compare step times: emulated, simulated and by the law.

    python benchmarks/parity.py [--grid hosts] [--seed 2] [--out build/parity] [--cells 80] [--only 17,18]
    python benchmarks/parity.py --draw          draws what is recorded again

The grid `all` draws loss, buffers and stragglers on tuned hosts; `hosts` draws the buffers of hosts, on faster networks
that lose nothing. Cell i of a grid and a seed is always the same. A cell that varies by chance, with packet loss, small
buffers or stragglers, has three repetitions, or nine if these differ by more than 10 %, and its median is
compared, as in all figures. What is emulated is kept, so the same command continues where it stopped, and repeats what
was not valid; the simulation runs anew. Points are also in parity.csv, and drawn in the folders simulated and law.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.analysis.compare import Comparison, Pair  # noqa: E402
from wanbench.harness.api import run  # noqa: E402
from wanbench.harness.errors import Interrupted, WanbenchError  # noqa: E402
from wanbench.harness.plan.law import gloo_rounds  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402
from wanbench.harness.show.comparison import summary  # noqa: E402
from wanbench.harness.show.figures.drawing import save  # noqa: E402
from wanbench.harness.show.figures.parity import draw_parity, parity  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402

_LONGEST_STEP_S = 1.6
_MOST_MBIT = 1500  # of all workers together
_LONG_STEP_S = 2.5  # of hosts whose buffers bind
_LEAST_IN_FLIGHT = 2.6e6  # bytes of a connection of the stock hosts
_LARGEST_SPREAD = 0.1  # of repetitions, relative to their median
_MANY = 9
_LOOKS = {"direct": "ssgd", "gloo": "delayed", "hierarchical": "sparse", "ring": "dts"}  # colours of these algorithms
_RECORDED = ROOT / "results" / "reference" / "parity"
_FIGURES = {  # the column beside what was emulated, and the tables
    "simulated": ("simulated", ["parity.csv"]),
    "law": ("law", ["parity.csv"]),
    "unseen": ("simulated", ["parity-2.csv", "hosts-2.csv"]),
}
_SECONDS = ("emulated_s", "simulated_s", "law_s")
_ALGORITHMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ssgd", {}), ("ssgd", {}), ("delayed", {"delay": 1}), ("delayed", {"delay": 6}), ("sparse", {"period": 4}),
    ("dts", {"delay": 4, "period": 4}), ("diloco", {"period": 10}), ("sgp", {}),
)  # fmt: skip


def point(grid: str, seed: int, number: int) -> dict[str, Any]:
    """The values of a cell, drawn again until a step is short enough and the relay can carry the rates."""
    first = {"all": "parity", "hosts": "hosts"}  # what the cells of seed 1 were drawn with
    random = Random(f"{first[grid]} {number}" if seed == 1 else f"{grid} {seed} {number}")
    return _host_point(random) if grid == "hosts" else _point(random)


def _host_point(random: Random) -> dict[str, Any]:
    """A cell of the grid `hosts`, whose steps last as long as buffers let them."""
    while True:
        drawn = _drawn_host(random)
        period = drawn["algorithm"][1].get("period", 1)
        pieces_s = 2 * drawn["mb"] * 8 / drawn["mbit"] / period
        window_mbit = math.inf if drawn["preset"] == "tuned" else 8e-3 * _LEAST_IN_FLIGHT / drawn["rtt_ms"]
        connections = 1 if drawn["collective"] in ("gloo", "ring") else drawn["workers"] - 1
        mbit = min(drawn["mbit"], connections * window_mbit)
        rounds = gloo_rounds(drawn["workers"], int(drawn["mb"] * 1e6)) if drawn["collective"] == "gloo" else 1
        step_s = drawn["step_ms"] / 1e3 + pieces_s * drawn["mbit"] / mbit + rounds * drawn["rtt_ms"] / 1e3
        if step_s <= _LONG_STEP_S and drawn["workers"] * mbit <= _MOST_MBIT:
            return drawn


def _drawn_host(random: Random) -> dict[str, Any]:
    workers = random.randint(2, 6)
    return {
        "workers": workers,
        "sites": workers,
        "collective": random.choice(["direct", "gloo", "hierarchical", "ring"]),
        "mb": _between(random, 1, 100),
        "rtt_ms": _between(random, 20, 300),
        "mbit": _between(random, 100, 2000),
        "buffer_ms": None,
        "loss": 0,
        "after_idle": True,
        "preset": random.choice(["tuned", "stock-6.1", "stock-6.1", "stock-6.18", "stock-6.18"]),
        "tcp": random.choice(["cubic", "cubic", "reno", "bbr"]),
        "uneven": random.random() < 0.3,
        "step_ms": _between(random, 20, 300),
        "step_cv": random.choice([0.0, 0.02]),
        "algorithm": random.choice(_ALGORITHMS),
        "seed": random.randint(1, 1 << 20),
    }


def _between(random: Random, low: float, high: float) -> float:
    return float(f"{low * (high / low) ** random.random():.3g}")


def _point(random: Random) -> dict[str, Any]:
    while True:
        drawn = _drawn(random)
        sent_s = 2 * drawn["mb"] * 8 / drawn["mbit"] / (drawn["algorithm"][1].get("period", 1))
        rounds = gloo_rounds(drawn["workers"], int(drawn["mb"] * 1e6)) if drawn["collective"] == "gloo" else 1
        step_s = drawn["step_ms"] / 1e3 + sent_s + rounds * drawn["rtt_ms"] / 1e3
        if step_s <= _LONGEST_STEP_S and drawn["workers"] * drawn["mbit"] <= _MOST_MBIT and sent_s > 1e-4:
            return drawn


def _drawn(random: Random) -> dict[str, Any]:
    workers = random.randint(2, 8)
    return {
        "workers": workers,
        "sites": random.choice([workers, workers, workers, max(2, workers // 2)]),
        "collective": random.choice(["direct", "direct", "gloo", "gloo", "hierarchical", "ring"]),
        "mb": _between(random, 0.01, 100),
        "rtt_ms": _between(random, 10, 300),
        "mbit": _between(random, 10, 1000),
        "buffer_ms": random.choice([None, None, 5, 50, 200]),
        "loss": random.choice([0, 0, 0, 0, 0.01, 0.1]),
        "after_idle": False,
        "preset": "tuned",
        "tcp": random.choice(["reno", "reno", "cubic", "bbr"]),
        "uneven": random.random() < 0.3,
        "step_ms": _between(random, 20, 300),
        "step_cv": random.choice([0.0, 0.02, 0.02, 0.3, 0.8]),
        "algorithm": random.choice(_ALGORITHMS),
        "seed": random.randint(1, 1 << 20),
    }


def profile_of(cell: Mapping[str, Any], file: Path) -> str:
    """Write the network of a cell: a link for each site, or a queue with a stated buffer for each path."""
    random, names = Random(cell["seed"]), [f"s{index}" for index in range(cell["sites"])]
    linked = cell["buffer_ms"] is None
    lines = ["src,dst,rtt_ms,loss_pct,rate_mbps,buffer,up_mbps,down_mbps"]
    lines += [f"{name},,,,,,{cell['mbit']},{cell['mbit']}" for name in names if linked]
    for a, b in combinations(names, 2):
        factor = random.uniform(0.3, 1) if cell["uneven"] else 1.0
        rtt_ms, mbit = cell["rtt_ms"] * factor, cell["mbit"] * (random.uniform(0.5, 1) if cell["uneven"] else 1.0)
        queue = "," if linked else f"{mbit:.3f},{max(20_000, int(mbit * 125 * cell['buffer_ms']))}B"
        lines.append(f"{a},{b},{rtt_ms:.3f},{cell['loss']},{queue},,")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def repeats(cell: Mapping[str, Any]) -> int:
    """At first three repetitions of what varies by chance, decided before anything is measured."""
    return 3 if cell["loss"] or cell["buffer_ms"] == 5 or cell["step_cv"] >= 0.3 else 1


def spec_of(number: int, cell: Mapping[str, Any], out: Path, count: int) -> Spec:
    """The experiment of a cell, with a number of repetitions."""
    kind, params = cell["algorithm"]
    return Spec.from_dict(
        {
            "schema": 1,
            "name": f"cell-{number:03d}",
            "workload": {
                "params": max(64, int(cell["mb"] * 250_000)),
                "tensors": 2,
                "step_time": f"{cell['step_ms']}ms",
                "step_cv": cell["step_cv"],
                "payload_scale": cell["scale"],
            },
            "network": {
                "profile": profile_of(cell, out / "networks" / f"{number:03d}.csv"),
                "place": "blocked",
                "tcp": {
                    "preset": cell["preset"],
                    "congestion": cell["tcp"],
                    "slow_start_after_idle": cell["after_idle"],
                },
            },
            "comm": {"collective": cell["collective"]},
            "algorithms": {"a": {"kind": kind, **params}},
            "sweep": {"workers": [cell["workers"]]},
            "run": {"repeats": count, "seed": cell["seed"]},
        }
    )


def measured(number: int, cell: Mapping[str, Any], out: Path, testbed: str) -> tuple[list[Mapping[str, Any]], str]:
    """The rows of a cell on a testbed, and why there are none."""
    emulated = testbed == "netns"
    rows, why = _repeated(spec_of(number, cell, out, repeats(cell)), out / testbed, testbed, fresh=not emulated)
    if repeats(cell) > 1 and rows and _spread(rows) > _LARGEST_SPREAD:
        return _repeated(spec_of(number, cell, out, _MANY), out / testbed, testbed, fresh=False)
    return rows, why


def _repeated(spec: Spec, out: Path, testbed: str, *, fresh: bool) -> tuple[list[Mapping[str, Any]], str]:
    try:
        done = run(spec, testbed=testbed, out=out, jobs=2, figures=False, fresh=fresh, keep=not fresh)
    except Interrupted:
        raise
    except WanbenchError as error:
        return [], str(error)
    return [row for row in done.rows() if row["workers"] > 1], ""


def _spread(rows: Sequence[Mapping[str, Any]]) -> float:
    """How far repetitions are apart, relative to their median."""
    times = [row["step_time_s"] for row in rows if row["status"] == "ok"]
    return (max(times) - min(times)) / median(times) if times else 0.0


def title(cell: Mapping[str, Any]) -> str:
    """Name a cell by its values."""
    kind, params = cell["algorithm"]
    label = "-".join([kind, *(f"{name[0]}{value}" for name, value in params.items())])
    extra = [f"buffer {cell['buffer_ms']} ms"] if cell["buffer_ms"] else []
    extra += [f"loss {cell['loss']}%"] if cell["loss"] else []
    extra += ["uneven"] if cell["uneven"] else []
    at = f"N={cell['workers']}" + (f"/{cell['sites']}" if cell["sites"] < cell["workers"] else "")
    return (
        f"{at} {cell['collective']} {cell['mb']:g}MB {cell['rtt_ms']:g}ms {cell['mbit']:g}Mbit "
        f"{cell['preset']} {cell['tcp']} "
        f"{label} step {cell['step_ms']:g}ms cv{cell['step_cv']} {' '.join(extra)}"
    )


def before(number: int, out: Path) -> tuple[list[Mapping[str, Any]], str]:
    """The rows of a cell that was emulated before, and why there are none."""
    folder = out / "netns" / f"cell-{number:03d}"
    rows = RunFolder(folder).rows() if folder.exists() else []
    return [row for row in rows if row["workers"] > 1], "" if rows else "not emulated"


def lines(cells: Mapping[int, Mapping[str, Any]], out: Path, *, kept: bool) -> Iterator[dict[str, Any]]:
    """Simulate the cells one after another, and emulate them, or not if `kept`. Yield a line each."""
    for number, cell in cells.items():
        emulated, why = before(number, out) if kept else measured(number, cell, out, "netns")
        simulated, refused = measured(number, cell, out, "virtual")
        valid = [row for row in emulated if row["status"] == "ok"]
        line = {
            "cell": number,
            "collective": cell["collective"],
            "what": title(cell),
            "status": "ok" if valid else emulated[0]["status"] if emulated else "failed",
            "repetitions": len(valid),
            **_of("emulated_s", valid or emulated),
            **_of("simulated_s", simulated),
            "law_s": simulated[0]["predicted_step_time_s"] if simulated else None,
            "retransmits": sum(row["retransmits"] or 0 for row in valid or emulated),
            "reason": why or refused or next((row["reason"] for row in emulated if row["reason"]), ""),
        }
        print(_text(line), flush=True)
        yield line


def _of(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The median, minimum and maximum step time of repetitions."""
    found = [row["step_time_s"] for row in rows if row["step_time_s"] is not None]
    if not found:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    return {name: median(found), f"{name}_min": min(found), f"{name}_max": max(found)}


def _text(line: Mapping[str, Any]) -> str:
    def shown(value: float | None, base: float | None) -> str:
        return "-" if value is None or not base else f"{100 * (value / base - 1):+.1f}%"

    took = line["emulated_s"]
    time = "-" if took is None else f"{took:.4f}"
    near = f"{shown(line['simulated_s'], took):>8} {shown(line['law_s'], took):>8}"
    text = f"{line['cell']:3d} {line['status']:8s} {time:>8} {near} {line['retransmits']!s:>5} {line['what']}"
    return f"{text} {line['reason'][:90]}"


def main() -> None:
    """Measure the cells, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", choices=("all", "hosts"), default="all", help="what is drawn")
    parser.add_argument("--seed", type=int, default=1, help="cells of another seed are other cells (default 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="payload_scale, for a host that is too small")
    parser.add_argument("--out", default=str(ROOT / "build/parity"), help="folder of the measurements")
    parser.add_argument("--cells", type=int, default=80, help="number of cells")
    parser.add_argument("--only", default="", help="numbers of cells, separated by commas")
    parser.add_argument("--kept", action="store_true", help="emulate nothing: compare what was emulated before")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw what is recorded")
    asked = parser.parse_args()
    if asked.draw:
        draw()
        return
    numbers = [int(word) for word in asked.only.split(",")] if asked.only else list(range(asked.cells))
    out = Path(asked.out)
    if asked.kept and not any(before(number, out)[0] for number in numbers):
        parser.error(f"--kept: none of these cells is in {out / 'netns'}; leave --kept out to emulate them")
    cells = {number: {**point(asked.grid, asked.seed, number), "scale": asked.scale} for number in numbers}
    done = list(lines(cells, out, kept=asked.kept))
    with (out / "parity.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(done[0]))
        table.writeheader()
        table.writerows(done)
    for head in ("simulated", "law"):
        comparison = _comparison(done, head)
        if not comparison.pairs:
            print(f"{head}: no cell has both")
            continue
        print(f"{head}: {summary(comparison)}")
        draw_parity(comparison, f"Emulated and {head}", out / head)


def draw() -> None:
    """Draw the recorded tables."""
    for name, (head, tables) in _FIGURES.items():
        comparison = _comparison([line for table in tables for line in _read(_RECORDED / table)], head)
        for ending in ("svg", "png"):
            print(save(parity(comparison, f"Emulated and {head}"), _RECORDED / f"{name}.{ending}"))


def _read(table: Path) -> Iterator[dict[str, Any]]:
    """The lines of a table. Cells of the first grid have no other name than their number."""
    with table.open(newline="") as file:
        for line in csv.DictReader(file):
            seconds = {name: float(line[name]) if line[name] else None for name in _SECONDS}
            name = line["cell"] if table.stem == "parity" else f"{line['cell']} of {table.name}"
            yield {**line, **seconds, "cell": name}


def _comparison(lines: Sequence[Mapping[str, Any]], head: str) -> Comparison:
    """Valid cells, emulated against `head`; a colour for each collective."""
    paired = [line for line in lines if line["status"] == "ok" and line[f"{head}_s"]]
    pairs = [
        Pair(line["collective"], {"cell": line["cell"]}, "emulated", head, line["emulated_s"], line[f"{head}_s"], None,
             _LOOKS[line["collective"]], {})
        for line in paired
    ]  # fmt: skip
    return Comparison("testbed", tuple(pairs), len(lines) - len(paired))


if __name__ == "__main__":
    main()
