"""wanbench's public face; everything else is reached through it.

    Spec        an experiment: Spec.load("latency-sweep").override({"run.repeats": 1})
    run         run(spec) measures what is not finished yet and returns a Run
    Run         a run folder: Run.open("latency-sweep").results() is a pandas.DataFrame, .best() another; .report()
    figures     functions from results to matplotlib figures
    step        step() in a training loop of your own tells `wanbench exec` where its steps end
    testing     oracles for algorithms of your own: testing.check(Mine, period=4)

    Algorithm, Replica      what an algorithm of your own derives from and sees
    SSGD, Delayed, Sparse, DTS

Names are imported when they are first used, so `import wanbench` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import figures as figures
    from harness.api import Run as Run
    from harness.api import run as run
    from harness.spec import Spec as Spec
    from wanbench import testing as testing
    from workloads.algorithms.base import Algorithm as Algorithm
    from workloads.algorithms.base import Replica as Replica
    from workloads.algorithms.delayed import Delayed as Delayed
    from workloads.algorithms.dts import DTS as DTS
    from workloads.algorithms.sparse import Sparse as Sparse
    from workloads.algorithms.ssgd import SSGD as SSGD
    from workloads.stepping import step as step

_HOME = {
    "Algorithm": "workloads.algorithms.base",
    "DTS": "workloads.algorithms.dts",
    "Delayed": "workloads.algorithms.delayed",
    "Replica": "workloads.algorithms.base",
    "Run": "harness.api",
    "SSGD": "workloads.algorithms.ssgd",
    "Spec": "harness.spec",
    "Sparse": "workloads.algorithms.sparse",
    "figures": "harness.figures",
    "run": "harness.api",
    "step": "workloads.stepping",
    "testing": "wanbench.testing",
}

__all__ = [
    "DTS",
    "SSGD",
    "Algorithm",
    "Delayed",
    "Replica",
    "Run",
    "Sparse",
    "Spec",
    "figures",
    "run",
    "step",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wanbench' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return module if name in {"figures", "testing"} else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
