"""wanbench's public face; everything else is reached through it.

    Spec        an experiment: Spec.load("latency-sweep").override({"run.repeats": 1})
    run         run(spec) measures what is not finished yet and returns a Run
    Run         a run folder: Run.open("latency-sweep").results() is a pandas.DataFrame, .best() another; .report()
    figures     functions from results to matplotlib figures
    step        step() in a training loop of your own tells `wanbench exec` where its steps end
    wrap        wrap(model, optimizer, DTS(delay=4, period=4)): an algorithm in a training loop of your own
    Wrapped     what it returns: drain(), state_dict(), load_state_dict()
    WrapError   a model or an optimizer that it cannot work with
    testing     oracles for algorithms of your own: testing.check(Mine, period=4)

    Algorithm, Replica      what an algorithm of your own derives from and sees
    Setting, AlgorithmError what its `check` is given, and refuses with
    at_least, between, one_of    bounds of its parameters
    SSGD, Delayed, Sparse, DTS, DGA
    LocalSGD, CoCoD, OverlapLocalSGD, DiLoCo, StreamingDiLoCo, OLCO3
    SGP, OSGP, DPSGD, ECDPSGD, ADPSGD
    RPS, GradientSharing

    TopK, DGC, Chunkwise, RandomK, PowerSGD, SignSGD, QSGD, TernGrad, FP16, BF16    what `compression` takes

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
    from workloads.compression.chunkwise import Chunkwise as Chunkwise
    from workloads.compression.dgc import DGC as DGC
    from workloads.compression.half import BF16 as BF16
    from workloads.compression.half import FP16 as FP16
    from workloads.compression.powersgd import PowerSGD as PowerSGD
    from workloads.compression.qsgd import QSGD as QSGD
    from workloads.compression.randomk import RandomK as RandomK
    from workloads.compression.signsgd import SignSGD as SignSGD
    from workloads.compression.terngrad import TernGrad as TernGrad
    from workloads.compression.topk import TopK as TopK
    from workloads.flat import WrapError as WrapError
    from workloads.parameters import at_least as at_least
    from workloads.parameters import between as between
    from workloads.parameters import one_of as one_of
    from workloads.stepping import step as step
    from workloads.wrapping import Wrapped as Wrapped
    from workloads.wrapping import wrap as wrap

_HOME = {
    "Algorithm": "workloads.algorithms.base",
    "AlgorithmError": "workloads.algorithms.base",
    "Setting": "workloads.algorithms.base",
    "at_least": "workloads.parameters",
    "between": "workloads.parameters",
    "one_of": "workloads.parameters",
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
    "wrap": "workloads.wrapping",
    "Wrapped": "workloads.wrapping",
    "WrapError": "workloads.flat",
    "TopK": "workloads.compression.topk",
    "DGC": "workloads.compression.dgc",
    "Chunkwise": "workloads.compression.chunkwise",
    "RandomK": "workloads.compression.randomk",
    "PowerSGD": "workloads.compression.powersgd",
    "SignSGD": "workloads.compression.signsgd",
    "QSGD": "workloads.compression.qsgd",
    "TernGrad": "workloads.compression.terngrad",
    "FP16": "workloads.compression.half",
    "BF16": "workloads.compression.half",
}

__all__ = [
    "ADPSGD",
    "BF16",
    "DGA",
    "DGC",
    "DPSGD",
    "DTS",
    "ECDPSGD",
    "FP16",
    "OLCO3",
    "OSGP",
    "QSGD",
    "RPS",
    "SGP",
    "SSGD",
    "Algorithm",
    "AlgorithmError",
    "Chunkwise",
    "CoCoD",
    "Delayed",
    "DiLoCo",
    "GradientSharing",
    "LocalSGD",
    "OverlapLocalSGD",
    "PowerSGD",
    "RandomK",
    "Replica",
    "Run",
    "Setting",
    "SignSGD",
    "Sparse",
    "Spec",
    "StreamingDiLoCo",
    "TernGrad",
    "TopK",
    "WrapError",
    "Wrapped",
    "at_least",
    "between",
    "figures",
    "one_of",
    "run",
    "step",
    "testing",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wanbench' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return module if name in {"figures", "testing"} else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
