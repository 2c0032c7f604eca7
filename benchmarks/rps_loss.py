"""Show the effect of loss on RPS and gradient sharing: paired differences of a run of `rps-loss`, 95 % intervals.

    wanbench run rps-loss && python benchmarks/rps_loss.py [RUN] [--out DIR]

Repetition k has the same seed in every cell. So each accuracy is compared with that of the same algorithm without loss,
and with that of synchronous SGD, on the same initial model and batches. The exit code is 0 if two claims hold at 10 %
loss: the interval of RPS minus RPS without loss stays above minus one point, and the replicas of RPS are ten times
closer than those of gradient sharing. Otherwise it is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wanbench.harness.analysis.paired import MeanInterval, paired_difference
from wanbench.harness.api import Run

JUDGED_LOSS_PCT, MOST_LOST_POINTS, LEAST_RATIO = 10.0, 1.0, 10.0
Cells = Mapping[tuple[str, float], Mapping[int, Mapping[str, Any]]]


def cells_of(rows: Sequence[Mapping[str, Any]]) -> Cells:
    """Return the valid repetitions by (kind, loss in percent) and seed."""
    found: dict[tuple[str, float], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        if row["workers"] > 1 and row["status"] == "ok":
            found.setdefault((row["kind"], float(row["loss_pct"])), {})[int(row["seed"])] = row
    return found


def accuracy_change(cells: Cells, one: tuple[str, float], other: tuple[str, float]) -> MeanInterval:
    """Return the paired difference in accuracy of two cells."""
    mine, theirs = ({seed: row["accuracy"] for seed, row in cells[cell].items()} for cell in (one, other))
    found = paired_difference(mine, theirs)
    if found is None:
        sys.exit(f"{one} and {other}: no repetitions with equal seeds")
    return found


def mean(cells: Cells, cell: tuple[str, float], column: str) -> float:
    """Return the mean over the repetitions."""
    return float(np.mean([row[column] for row in cells[cell].values()]))


def show(cells: Cells) -> None:
    """Print one line per cell."""
    header = ("algorithm", "loss %", "blocks lost %", "accuracy %", "minus itself at 0 %", "minus ssgd", "spread")
    print("{:17}  {:>6}  {:>13}  {:>10}  {:25}  {:25}  {}".format(*header))
    for kind, loss in sorted(cells, key=lambda cell: (cell[0] != "ssgd", cell[0] != "rps", cell[1])):
        cell, parts = (kind, loss), []
        for other in ((kind, 0.0), ("ssgd", 0.0)):
            found = accuracy_change(cells, cell, other)
            text = f"{100 * found.mean:+6.2f} [{100 * found.low:+6.2f}, {100 * found.high:+6.2f}]"
            parts.append(text if cell != other else "")
        lost = "" if kind == "ssgd" else f"{mean(cells, cell, 'blocks_lost_pct'):.2f}"
        accuracy, spread = 100 * mean(cells, cell, "accuracy"), mean(cells, cell, "replica_spread")
        print(f"{kind:17}  {loss:6g}  {lost:>13}  {accuracy:10.2f}  {parts[0]:25}  {parts[1]:25}  {spread:.5f}")


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="rps-loss")
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    cells = cells_of(Run.open(arguments.run, arguments.out).rows())
    show(cells)
    rps, sharing = ("rps", JUDGED_LOSS_PCT), ("gradient-sharing", JUDGED_LOSS_PCT)
    found = accuracy_change(cells, rps, ("rps", 0.0))
    low = 100 * found.low
    ratio = mean(cells, sharing, "replica_spread") / mean(cells, rps, "replica_spread")
    print(f"At {JUDGED_LOSS_PCT:g} % loss RPS loses at most {max(0.0, -low):.2f} points ({found.count} pairs, 95 %).")
    print(f"Replicas of gradient sharing are {ratio:.1f} times further apart than those of RPS.")
    return 0 if low >= -MOST_LOST_POINTS and ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
