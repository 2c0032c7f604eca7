"""wanbench: which distributed training algorithm scales on your network? This is its public interface.

    run         run("smoke", testbed="virtual") measures what is not finished yet and returns a Run
    Spec        an experiment: Spec.load("latency-sweep").override({"run.repeats": 1}), Spec.from_dict({...})
    Run         a run folder: Run.open("latency-sweep").results() and .best() are tables, .figures(), .report()
    figures     functions that draw results with matplotlib
    wrap        wrap(model, optimizer, "dts", delay=4, period=4): an algorithm in your own training loop
    attach      the same for a model in DistributedDataParallel
    Wrapped     the object that both return: drain(), final(), state_dict(), load_state_dict()
    WrapError   the model or the optimizer is one that wrap cannot work with
    step        step() marks the end of a training step for `wanbench exec`
    testing     checks for your own algorithm: testing.check(Mine, period=4)

    Algorithm, Replica           the base class of your own algorithm, and the worker's state that it sees
    Promises                     the properties that it claims
    Setting, AlgorithmError      what its `check` receives, and raises to refuse
    at_least, between, one_of    bounds of its parameters
    DTS, LocalSGD, SGP, ...      the built-in algorithms, one class for each line of `wanbench list algorithms`
    TopK, QSGD, ...              values of `compression`, one class for each line of `wanbench list compressors`

A name is imported when it is first used, so `import wanbench` takes no time. `entry` is where the command begins, and
`pytest_plugin` the fixture of test suites.
"""

import importlib
from functools import cache
from typing import Any

_MODULES = {"figures": "wanbench.harness.show.figures", "testing": "wanbench.testing"}
# The public names of each module; `_classes` has more. `__init__.pyi` has all, for type checkers and editors.
_NAMES = {
    "wanbench.harness.api": ("Run", "run"),
    "wanbench.harness.spec.experiment": ("Spec",),
    "wanbench.workloads.algorithms.base": ("Algorithm", "AlgorithmError", "Promises", "Replica", "Setting"),
    "wanbench.workloads.loop.stepping": ("step",),
    "wanbench.workloads.parameters": ("at_least", "between", "one_of"),
    "wanbench.workloads.wrap.attach": ("attach",),
    "wanbench.workloads.wrap.flat": ("WrapError",),
    "wanbench.workloads.wrap.wrapped": ("Wrapped", "wrap"),
}


_HOME = {name: module for module, names in _NAMES.items() for name in names}


@cache
def _classes() -> dict[str, str]:
    """The module of each class in the registries."""
    from wanbench.workloads.algorithms import registry as algorithms
    from wanbench.workloads.compression import registry as compressors

    paths = [f"algorithms.{algorithms.BUILT_IN[kind].path}" for kind in algorithms.kinds() if kind != "local"]
    paths += [f"compression.{path}" for path in compressors.BUILT_IN.values()]
    return {name: f"wanbench.workloads.{module}" for module, _, name in (path.partition(":") for path in paths)}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name == "__all__":
        return __dir__()
    home = _HOME.get(name) or ("" if name.startswith("_") else _classes().get(name))
    if home:
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'wanbench' has no attribute {name!r}{_near(name)}")


def _near(name: str) -> str:
    """The end of the message: the closest public name, or all of them. Tools that ask for `__x__` need neither."""
    if name.startswith("_"):
        return ""
    from wanbench.netprofiles.errors import did_you_mean

    return did_you_mean(name, __dir__(), f"it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted([*_MODULES, *_HOME, *_classes()])
