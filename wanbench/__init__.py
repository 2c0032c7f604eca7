"""wanbench: which distributed training algorithm scales on your network? This is its public interface.

    run         run("smoke", testbed="virtual") measures what is not finished yet and returns a Run
    Spec        an experiment: Spec.load("latency-sweep").override({"run.repeats": 1}), Spec.from_dict({...})
    Run         a run folder: Run.open("latency-sweep").results() and .best() are tables, .figures(), .report()
    figures     functions that draw results with matplotlib
    wrap        wrap(model, optimizer, "dts", delay=4, period=4): an algorithm in your own training loop
    Wrapped     the object that wrap returns: drain(), state_dict(), load_state_dict()
    WrapError   the model or the optimizer is one that wrap cannot work with
    step        step() marks the end of a training step for `wanbench exec`
    testing     checks for your own algorithm: testing.check(Mine, period=4)

    Algorithm, Replica           the base class of your own algorithm, and the worker's state that it sees
    Promises                     the properties that it claims
    Setting, AlgorithmError      what its `check` receives, and raises to refuse
    at_least, between, one_of    bounds of its parameters
    SSGD, Delayed, Sparse, DTS, DGA
    LocalSGD, CoCoD, OverlapLocalSGD, DiLoCo, StreamingDiLoCo, EagerDiLoCo, SparseLoCo, OLCO3
    AsyncLocalSGD, HALoS
    SGP, OSGP, DPSGD, ECDPSGD, ADPSGD
    RPS, GradientSharing

    TopK, ChunkTopK, DGC, Chunkwise, RandomK, PowerSGD, SignSGD, QSGD, TernGrad, FP16, BF16   values of `compression`

A name is imported when it is first used, so `import wanbench` takes no time.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"figures": "wanbench.harness.show.figures", "testing": "wanbench.testing"}
# The public names of each module. `__init__.pyi` lists the same names for type checkers and editors.
_NAMES = {
    "wanbench.harness.api": ("Run", "run"),
    "wanbench.harness.spec.experiment": ("Spec",),
    "wanbench.workloads.algorithms.adpsgd": ("ADPSGD",),
    "wanbench.workloads.algorithms.async_local_sgd": ("AsyncLocalSGD",),
    "wanbench.workloads.algorithms.base": ("Algorithm", "AlgorithmError", "Promises", "Replica", "Setting"),
    "wanbench.workloads.algorithms.cocod": ("CoCoD",),
    "wanbench.workloads.algorithms.delayed": ("Delayed",),
    "wanbench.workloads.algorithms.dga": ("DGA",),
    "wanbench.workloads.algorithms.diloco": ("DiLoCo",),
    "wanbench.workloads.algorithms.dpsgd": ("DPSGD",),
    "wanbench.workloads.algorithms.dts": ("DTS",),
    "wanbench.workloads.algorithms.eager": ("EagerDiLoCo",),
    "wanbench.workloads.algorithms.ecdpsgd": ("ECDPSGD",),
    "wanbench.workloads.algorithms.gradient_sharing": ("GradientSharing",),
    "wanbench.workloads.algorithms.halos": ("HALoS",),
    "wanbench.workloads.algorithms.localsgd": ("LocalSGD",),
    "wanbench.workloads.algorithms.olco3": ("OLCO3",),
    "wanbench.workloads.algorithms.osgp": ("OSGP",),
    "wanbench.workloads.algorithms.overlap": ("OverlapLocalSGD",),
    "wanbench.workloads.algorithms.rps": ("RPS",),
    "wanbench.workloads.algorithms.sgp": ("SGP",),
    "wanbench.workloads.algorithms.sparse": ("Sparse",),
    "wanbench.workloads.algorithms.sparseloco": ("SparseLoCo",),
    "wanbench.workloads.algorithms.ssgd": ("SSGD",),
    "wanbench.workloads.algorithms.streaming": ("StreamingDiLoCo",),
    "wanbench.workloads.compression.chunktopk": ("ChunkTopK",),
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
    raise AttributeError(f"module 'wanbench' has no attribute {name!r}{_near(name)}")


def _near(name: str) -> str:
    """The end of the message: the closest public name, or all of them. Tools that ask for `__x__` need neither."""
    if name.startswith("_"):
        return ""
    from wanbench.netprofiles.errors import did_you_mean

    return did_you_mean(name, __all__, f"it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
