"""wanbench's public face; everything else is reached through it.

    Spec        an experiment: Spec.load("latency-sweep").override({"run.repeats": 1})
    run         run(spec) measures what is not finished yet and returns a Run
    Run         a run folder: Run.open("latency-sweep").results() is a pandas.DataFrame, .best() another; .report()
    figures     functions from results to matplotlib figures
    step        step() in a training loop of your own tells `wanbench exec` where its steps end
    testing     oracles for algorithms of your own: testing.check(Mine, period=4)

    Algorithm, Replica      what an algorithm of your own derives from and sees
    Setting, AlgorithmError what its `check` is given, and refuses with
    SSGD, Delayed, Sparse, DTS, DGA
    LocalSGD, CoCoD, OverlapLocalSGD, DiLoCo, StreamingDiLoCo, OLCO3
    SGP, OSGP, DPSGD, ECDPSGD, ADPSGD
    RPS, GradientSharing

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
    from workloads.algorithms.adpsgd import ADPSGD as ADPSGD
    from workloads.algorithms.base import Algorithm as Algorithm
    from workloads.algorithms.base import AlgorithmError as AlgorithmError
    from workloads.algorithms.base import Replica as Replica
    from workloads.algorithms.base import Setting as Setting
    from workloads.algorithms.cocod import CoCoD as CoCoD
    from workloads.algorithms.delayed import Delayed as Delayed
    from workloads.algorithms.dga import DGA as DGA
    from workloads.algorithms.diloco import DiLoCo as DiLoCo
    from workloads.algorithms.dpsgd import DPSGD as DPSGD
    from workloads.algorithms.dts import DTS as DTS
    from workloads.algorithms.ecdpsgd import ECDPSGD as ECDPSGD
    from workloads.algorithms.gradient_sharing import GradientSharing as GradientSharing
    from workloads.algorithms.localsgd import LocalSGD as LocalSGD
    from workloads.algorithms.olco3 import OLCO3 as OLCO3
    from workloads.algorithms.osgp import OSGP as OSGP
    from workloads.algorithms.overlap import OverlapLocalSGD as OverlapLocalSGD
    from workloads.algorithms.rps import RPS as RPS
    from workloads.algorithms.sgp import SGP as SGP
    from workloads.algorithms.sparse import Sparse as Sparse
    from workloads.algorithms.ssgd import SSGD as SSGD
    from workloads.algorithms.streaming import StreamingDiLoCo as StreamingDiLoCo
    from workloads.stepping import step as step

_HOME = {
    "Algorithm": "workloads.algorithms.base",
    "AlgorithmError": "workloads.algorithms.base",
    "Setting": "workloads.algorithms.base",
    "DGA": "workloads.algorithms.dga",
    "LocalSGD": "workloads.algorithms.localsgd",
    "CoCoD": "workloads.algorithms.cocod",
    "OverlapLocalSGD": "workloads.algorithms.overlap",
    "DiLoCo": "workloads.algorithms.diloco",
    "StreamingDiLoCo": "workloads.algorithms.streaming",
    "OLCO3": "workloads.algorithms.olco3",
    "RPS": "workloads.algorithms.rps",
    "GradientSharing": "workloads.algorithms.gradient_sharing",
    "SGP": "workloads.algorithms.sgp",
    "OSGP": "workloads.algorithms.osgp",
    "DPSGD": "workloads.algorithms.dpsgd",
    "ECDPSGD": "workloads.algorithms.ecdpsgd",
    "ADPSGD": "workloads.algorithms.adpsgd",
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
    "ADPSGD",
    "DGA",
    "DPSGD",
    "DTS",
    "ECDPSGD",
    "OLCO3",
    "OSGP",
    "RPS",
    "SGP",
    "SSGD",
    "Algorithm",
    "AlgorithmError",
    "CoCoD",
    "Delayed",
    "DiLoCo",
    "GradientSharing",
    "LocalSGD",
    "OverlapLocalSGD",
    "Replica",
    "Run",
    "Setting",
    "Sparse",
    "Spec",
    "StreamingDiLoCo",
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
