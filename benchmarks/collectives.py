"""Measure how far each collective is from the limit of its network, one factor at a time, on emulated links.

    python benchmarks/collectives.py [--out build/collectives] [--only "10.2 MB"] [--collectives direct,gloo]

The middle is 4 workers, 10.2 MB, RTT 100 ms, 100 Mbit/s, Reno, no loss; each line changes one value. `limit` is the
time of two phases, max(T + RTT/2, T/2 + RTT) with T = 2 (N-1)/N bytes with headers / rate, or of one-shot,
(N-1) bytes with headers / rate + RTT/2, whichever is shorter; N are the sites, of which each has one link. Points that
this host cannot emulate are `invalid`. `direct-16` has 16 connections for each pair of workers. What is measured is
kept, so the same command continues where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.api import run  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402

_MIDDLE: dict[str, Any] = {
    "workers": 4,
    "mb": 10.2,
    "rtt_ms": 100,
    "mbit": 100,
    "loss": "0%",
    "tcp": "reno",
    "sites": None,
    "buffer_ms": None,
}
_FACTORS: dict[str, tuple[Any, ...]] = {
    "workers": (2, 8), "mb": (0.004, 1.02), "rtt_ms": (10, 300), "mbit": (1000,), "loss": ("0.1%",),
    "tcp": ("cubic", "bbr"), "buffer_ms": (5, 200),
}  # fmt: skip
_STEP_S = 0.05
_WIRE = 1500 / 1448
_COLUMNS = ("point", "collective", "all-reduce s", "limit s", "over", "law s", "retransmits", "status")


def points() -> Iterator[dict[str, Any]]:
    """Yield the middle, and then every point that differs from it in one value."""
    yield _MIDDLE
    for name, values in _FACTORS.items():
        for value in values:
            yield {**_MIDDLE, name: value}
    yield {**_MIDDLE, "mb": 102, "mbit": 1000}
    for workers in (8, 16):
        yield {**_MIDDLE, "workers": workers, "sites": 4}


def limit_s(point: Mapping[str, Any]) -> float:
    """The shortest possible time of an all-reduce in seconds: see the module's docstring."""
    n: int = point["sites"] or point["workers"]
    rtt_s: float = point["rtt_ms"] / 1e3
    one_vector_s: float = point["mb"] * 8 * _WIRE / point["mbit"]
    pieces_s = 2 * (n - 1) / n * one_vector_s
    return min(max(pieces_s + rtt_s / 2, pieces_s / 2 + rtt_s), (n - 1) * one_vector_s + rtt_s / 2)


def title(point: Mapping[str, Any]) -> str:
    """Name a point by all its values."""
    sites = f" in {point['sites']} sites" if point["sites"] else ""
    values = (f"N={point['workers']}{sites}", f"{point['mb']:g} MB", f"{point['rtt_ms']} ms", f"{point['mbit']} Mbit/s")
    extra = [f"loss {point['loss']}"] if point["loss"] != "0%" else []
    extra += [f"buffer {point['buffer_ms']} ms"] if point["buffer_ms"] else []
    return ", ".join((*values, point["tcp"], *extra))


def profile_of(point: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The network of a point: one site for each worker, or a file with sites that share a link or state a buffer."""
    if point["buffer_ms"]:
        return {"profile": str(_with_buffers(point, folder))}
    if not point["sites"]:
        return {"profile": "uniform", "rate": f"{point['mbit']}Mbit", "rtt": f"{point['rtt_ms']}ms"}
    names = [f"site{index}" for index in range(point["sites"])]
    lines = ["src,dst,rtt_ms,up_mbps,down_mbps", *(f"{name},,,{point['mbit']},{point['mbit']}" for name in names)]
    lines += [f"{a},{b},{point['rtt_ms']},," for a, b in combinations(names, 2)]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{len(names)}-sites-{point['mbit']}-{point['rtt_ms']}.csv"
    file.write_text("\n".join(lines) + "\n")
    return {"profile": str(file)}


def _with_buffers(point: Mapping[str, Any], folder: Path) -> Path:
    """A file in which each path has its share of a worker's rate, and a buffer."""
    mbit = point["mbit"] / (point["workers"] - 1)
    buffer = f"{int(mbit * 125 * point['buffer_ms'])}B"
    names = [f"w{index}" for index in range(point["workers"])]
    lines = ["src,dst,rtt_ms,rate_mbps,buffer"]
    lines += [f"{a},{b},{point['rtt_ms']},{mbit:.4f},{buffer}" for a, b in combinations(names, 2)]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{len(names)}-buffers-{point['mbit']}-{point['rtt_ms']}-{point['buffer_ms']}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def spec_of(point: Mapping[str, Any], collective: str, folder: Path) -> Spec:
    """The experiment of a point: synchronous SGD whose gradient is one message."""
    name_of, _, streams = collective.partition("-")
    name = title(point).replace(" ", "").replace("/", "").replace("=", "").replace("%", "pct").replace(",", "-")
    return Spec.from_dict(
        {
            "schema": 1,
            "name": f"{collective}-{name}".lower(),
            "workload": {"params": int(point["mb"] * 250_000), "tensors": 2, "step_time": "50ms", "step_cv": 0.0},
            "network": {
                **profile_of(point, folder),
                "loss": point["loss"],
                "tcp": {"congestion": point["tcp"], "slow_start_after_idle": False},
            },
            "comm": {"collective": name_of, "buckets": "1GiB", **({"channels": int(streams)} if streams else {})},
            "algorithms": {"ssgd": {}},
            "sweep": {"workers": [point["workers"]]},
            "run": {"repeats": 1, "testbed": "netns"},
        }
    )


def line(point: Mapping[str, Any], collective: str, out: str) -> list[str]:
    """Measure a point, if it is not measured yet. Return its line of the table."""
    rows = run(spec_of(point, collective, Path(out)), out=out, jobs=1, figures=False).rows()
    (row,) = [row for row in rows if row["workers"] > 1]
    limit, law = limit_s(point), row["predicted_step_time_s"]
    took = None if row["step_time_s"] is None else row["step_time_s"] - _STEP_S
    numbers = [took, limit, None if took is None else took / limit, None if law is None else law - _STEP_S]
    shown = ["-" if number is None else f"{number:.3f}" for number in numbers]
    return [title(point), collective, *shown, str(row["retransmits"]), row["status"]]


def main() -> None:
    """Print one line for each point and collective."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "build/collectives"), help="folder of the measurements")
    parser.add_argument("--only", default="", help="points whose title contains this text")
    parser.add_argument("--collectives", default="direct,gloo,hierarchical,ring,direct-4,direct-16")
    asked = parser.parse_args()
    widths = (50, 13, 12, 8, 6, 8, 11, 8)
    print(" ".join(name.ljust(width) for name, width in zip(_COLUMNS, widths, strict=True)))
    for point in points():
        if asked.only in title(point):
            for collective in asked.collectives.split(","):
                cells = line(point, collective, asked.out)
                print(" ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), flush=True)


if __name__ == "__main__":
    main()
