"""Measure how long each compressor takes on this machine, in nanoseconds a byte: the `ns_per_byte` of a spec.

    python benchmarks/compressors.py [--mb 40] [--repeats 5]

The vector is one matrix of random numbers. `compress` and `restore` are medians; `ns_per_byte` is their mean, since the
simulated clock charges both alike. One thread computes, as in a worker.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.advise.answer import ns_per_byte  # noqa: E402
from wanbench.workloads.compression import registry  # noqa: E402


def main() -> None:
    """Print one line for each compressor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=40, help="size of the vector of float32")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    side = math.isqrt(int(asked.mb * 250_000))
    print(f"{'compressor':12} {'compress':>9} {'restore':>9} {'ns_per_byte':>12}")
    for kind in registry.kinds():
        compress, restore = ns_per_byte(kind, side, asked.repeats)
        print(f"{kind:12} {compress:9.2f} {restore:9.2f} {(compress + restore) / 2:12.2f}")


if __name__ == "__main__":
    main()
