"""Measure how long each compressor takes on this machine, in nanoseconds a byte: the `ns_per_byte` of a spec.

    python benchmarks/compressors.py [--mb 40] [--repeats 5]

The vector is one matrix of random numbers. `compress` and `restore` are medians; `ns_per_byte` is their mean, since the
simulated clock charges both alike. One thread computes, as in a worker.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.workloads.comm.local import run_replicas  # noqa: E402
from wanbench.workloads.compression import registry  # noqa: E402
from wanbench.workloads.compression.averaging import Averager  # noqa: E402


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measured(kind: str, side: int, repeats: int) -> tuple[float, float]:
    """The median nanoseconds a byte to compress a vector, and to restore it, of one worker alone."""
    v = torch.randn(side * side)

    def body(comm: object) -> list[tuple[float, float]]:
        averager, found = Averager(registry.create(kind), comm, v, shapes=((side, side),)), []  # type: ignore[arg-type]
        for _ in range(repeats + 1):
            began = time.perf_counter()
            exchange = averager.begin(v)
            begun = time.perf_counter()
            found.append((begun - began, seconds(exchange.wait)))
            averager.done(exchange)
        return found[1:]

    (times,) = run_replicas(1, body)
    nbytes = v.numel() * v.element_size()
    compress, restore = (1e9 * statistics.median(each) / nbytes for each in zip(*times, strict=True))
    return compress, restore


def main() -> None:
    """Print one line for each compressor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=40, help="size of the vector of float32")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    side = math.isqrt(int(asked.mb * 250_000))
    print(f"{'compressor':12} {'compress':>9} {'restore':>9} {'ns_per_byte':>12}")
    for kind in registry.kinds():
        compress, restore = measured(kind, side, asked.repeats)
        print(f"{kind:12} {compress:9.2f} {restore:9.2f} {(compress + restore) / 2:12.2f}")


if __name__ == "__main__":
    main()
