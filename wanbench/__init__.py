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
from typing import Any

_MODULES = {"figures": "wanbench.harness.show.figures", "testing": "wanbench.testing"}
# By module, the names that come from it; `__init__.pyi` says the same to type checkers and editors.
_NAMES = {
    "wanbench.harness.api": ("Run", "run"),
    "wanbench.harness.spec.experiment": ("Spec",),
    "wanbench.workloads.algorithms.adpsgd": ("ADPSGD",),
    "wanbench.workloads.algorithms.base": ("Algorithm", "AlgorithmError", "Promises", "Replica", "Setting"),
    "wanbench.workloads.algorithms.cocod": ("CoCoD",),
    "wanbench.workloads.algorithms.delayed": ("Delayed",),
    "wanbench.workloads.algorithms.dga": ("DGA",),
    "wanbench.workloads.algorithms.diloco": ("DiLoCo",),
    "wanbench.workloads.algorithms.dpsgd": ("DPSGD",),
    "wanbench.workloads.algorithms.dts": ("DTS",),
    "wanbench.workloads.algorithms.ecdpsgd": ("ECDPSGD",),
    "wanbench.workloads.algorithms.gradient_sharing": ("GradientSharing",),
    "wanbench.workloads.algorithms.localsgd": ("LocalSGD",),
    "wanbench.workloads.algorithms.olco3": ("OLCO3",),
    "wanbench.workloads.algorithms.osgp": ("OSGP",),
    "wanbench.workloads.algorithms.overlap": ("OverlapLocalSGD",),
    "wanbench.workloads.algorithms.rps": ("RPS",),
    "wanbench.workloads.algorithms.sgp": ("SGP",),
    "wanbench.workloads.algorithms.sparse": ("Sparse",),
    "wanbench.workloads.algorithms.ssgd": ("SSGD",),
    "wanbench.workloads.algorithms.streaming": ("StreamingDiLoCo",),
    "wanbench.workloads.compression.chunkwise": ("Chunkwise",),
    "wanbench.workloads.compression.dgc": ("DGC",),
    "wanbench.workloads.compression.half": ("BF16", "FP16"),
    "wanbench.workloads.compression.powersgd": ("PowerSGD",),
    "wanbench.workloads.compression.qsgd": ("QSGD",),
    "wanbench.workloads.compression.randomk": ("RandomK",),
    "wanbench.workloads.compression.signsgd": ("SignSGD",),
    "wanbench.workloads.compression.terngrad": ("TernGrad",),
    "wanbench.workloads.compression.topk": ("TopK",),
    "wanbench.workloads.loop.stepping": ("step",),
    "wanbench.workloads.parameters": ("at_least", "between", "one_of"),
    "wanbench.workloads.wrap.flat": ("WrapError",),
    "wanbench.workloads.wrap.wrapped": ("Wrapped", "wrap"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULES, *_HOME])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'wanbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
