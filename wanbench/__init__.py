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
    Promises                what it claims
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
    from wanbench import testing as testing
    from wanbench.harness.api import Run as Run
    from wanbench.harness.api import run as run
    from wanbench.harness.show import figures as figures
    from wanbench.harness.spec.experiment import Spec as Spec
    from wanbench.workloads.algorithms.adpsgd import ADPSGD as ADPSGD
    from wanbench.workloads.algorithms.base import Algorithm as Algorithm
    from wanbench.workloads.algorithms.base import AlgorithmError as AlgorithmError
    from wanbench.workloads.algorithms.base import Promises as Promises
    from wanbench.workloads.algorithms.base import Replica as Replica
    from wanbench.workloads.algorithms.base import Setting as Setting
    from wanbench.workloads.algorithms.cocod import CoCoD as CoCoD
    from wanbench.workloads.algorithms.delayed import Delayed as Delayed
    from wanbench.workloads.algorithms.dga import DGA as DGA
    from wanbench.workloads.algorithms.diloco import DiLoCo as DiLoCo
    from wanbench.workloads.algorithms.dpsgd import DPSGD as DPSGD
    from wanbench.workloads.algorithms.dts import DTS as DTS
    from wanbench.workloads.algorithms.ecdpsgd import ECDPSGD as ECDPSGD
    from wanbench.workloads.algorithms.gradient_sharing import GradientSharing as GradientSharing
    from wanbench.workloads.algorithms.localsgd import LocalSGD as LocalSGD
    from wanbench.workloads.algorithms.olco3 import OLCO3 as OLCO3
    from wanbench.workloads.algorithms.osgp import OSGP as OSGP
    from wanbench.workloads.algorithms.overlap import OverlapLocalSGD as OverlapLocalSGD
    from wanbench.workloads.algorithms.rps import RPS as RPS
    from wanbench.workloads.algorithms.sgp import SGP as SGP
    from wanbench.workloads.algorithms.sparse import Sparse as Sparse
    from wanbench.workloads.algorithms.ssgd import SSGD as SSGD
    from wanbench.workloads.algorithms.streaming import StreamingDiLoCo as StreamingDiLoCo
    from wanbench.workloads.compression.chunkwise import Chunkwise as Chunkwise
    from wanbench.workloads.compression.dgc import DGC as DGC
    from wanbench.workloads.compression.half import BF16 as BF16
    from wanbench.workloads.compression.half import FP16 as FP16
    from wanbench.workloads.compression.powersgd import PowerSGD as PowerSGD
    from wanbench.workloads.compression.qsgd import QSGD as QSGD
    from wanbench.workloads.compression.randomk import RandomK as RandomK
    from wanbench.workloads.compression.signsgd import SignSGD as SignSGD
    from wanbench.workloads.compression.terngrad import TernGrad as TernGrad
    from wanbench.workloads.compression.topk import TopK as TopK
    from wanbench.workloads.loop.stepping import step as step
    from wanbench.workloads.parameters import at_least as at_least
    from wanbench.workloads.parameters import between as between
    from wanbench.workloads.parameters import one_of as one_of
    from wanbench.workloads.wrap.flat import WrapError as WrapError
    from wanbench.workloads.wrap.wrapped import Wrapped as Wrapped
    from wanbench.workloads.wrap.wrapped import wrap as wrap

_HOME = {
    "Algorithm": "wanbench.workloads.algorithms.base",
    "AlgorithmError": "wanbench.workloads.algorithms.base",
    "Setting": "wanbench.workloads.algorithms.base",
    "at_least": "wanbench.workloads.parameters",
    "between": "wanbench.workloads.parameters",
    "one_of": "wanbench.workloads.parameters",
    "DGA": "wanbench.workloads.algorithms.dga",
    "LocalSGD": "wanbench.workloads.algorithms.localsgd",
    "CoCoD": "wanbench.workloads.algorithms.cocod",
    "OverlapLocalSGD": "wanbench.workloads.algorithms.overlap",
    "DiLoCo": "wanbench.workloads.algorithms.diloco",
    "StreamingDiLoCo": "wanbench.workloads.algorithms.streaming",
    "OLCO3": "wanbench.workloads.algorithms.olco3",
    "RPS": "wanbench.workloads.algorithms.rps",
    "GradientSharing": "wanbench.workloads.algorithms.gradient_sharing",
    "SGP": "wanbench.workloads.algorithms.sgp",
    "OSGP": "wanbench.workloads.algorithms.osgp",
    "DPSGD": "wanbench.workloads.algorithms.dpsgd",
    "ECDPSGD": "wanbench.workloads.algorithms.ecdpsgd",
    "ADPSGD": "wanbench.workloads.algorithms.adpsgd",
    "DTS": "wanbench.workloads.algorithms.dts",
    "Delayed": "wanbench.workloads.algorithms.delayed",
    "Promises": "wanbench.workloads.algorithms.base",
    "Replica": "wanbench.workloads.algorithms.base",
    "Run": "wanbench.harness.api",
    "SSGD": "wanbench.workloads.algorithms.ssgd",
    "Spec": "wanbench.harness.spec.experiment",
    "Sparse": "wanbench.workloads.algorithms.sparse",
    "figures": "wanbench.harness.show.figures",
    "run": "wanbench.harness.api",
    "step": "wanbench.workloads.loop.stepping",
    "testing": "wanbench.testing",
    "wrap": "wanbench.workloads.wrap.wrapped",
    "Wrapped": "wanbench.workloads.wrap.wrapped",
    "WrapError": "wanbench.workloads.wrap.flat",
    "TopK": "wanbench.workloads.compression.topk",
    "DGC": "wanbench.workloads.compression.dgc",
    "Chunkwise": "wanbench.workloads.compression.chunkwise",
    "RandomK": "wanbench.workloads.compression.randomk",
    "PowerSGD": "wanbench.workloads.compression.powersgd",
    "SignSGD": "wanbench.workloads.compression.signsgd",
    "QSGD": "wanbench.workloads.compression.qsgd",
    "TernGrad": "wanbench.workloads.compression.terngrad",
    "FP16": "wanbench.workloads.compression.half",
    "BF16": "wanbench.workloads.compression.half",
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
    "Promises",
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
