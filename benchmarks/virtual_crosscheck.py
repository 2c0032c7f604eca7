"""Compare the virtual testbed with the emulated one over whole experiments: step time by cell, and how many agree.

    python benchmarks/virtual_crosscheck.py [--out DIR] [EXPERIMENT ...]

The default experiments are latency-sweep and world4, as built in (3 repeats; about 25 minutes on two idle cores). A
second call resumes. Each becomes a run `crosscheck-<name>` with `testbed` as an axis, which `wanbench compare
crosscheck-<name>` shows again. The exit code is 1 unless 90 % of the cells agree within 10 % and all within 20 %.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wanbench.harness.analysis.compare import FAR, NEAR, compare
from wanbench.harness.api import run
from wanbench.harness.show.comparison import as_table
from wanbench.harness.show.figures.parity import draw_parity
from wanbench.harness.spec.experiment import Spec

MOST = 0.90


def crosscheck(name: str, out: Path) -> bool:
    """Run an experiment on both testbeds, print the comparison, and return whether they agree."""
    spec = Spec.load(name).override({"name": f"crosscheck-{name}", "sweep.testbed": ["netns", "virtual"]})
    done = run(spec, out=out, where=name)
    comparison = compare(done.rows(), "testbed")
    print(f"{name}\n{as_table(comparison)}", flush=True)
    draw_parity(comparison, spec.name, done.path / "figures")
    total = len(comparison.pairs)
    return comparison.within(NEAR) >= MOST * total and comparison.within(FAR) == total


if __name__ == "__main__":
    words = sys.argv[1:]
    out = Path(words.pop(words.index("--out") + 1)) if "--out" in words else Path("results")
    names = [word for word in words if word != "--out"] or ["latency-sweep", "world4"]
    agreed = [crosscheck(name, out) for name in names]
    sys.exit(0 if all(agreed) else 1)
