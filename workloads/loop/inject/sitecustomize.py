"""Found first on PYTHONPATH by a program that `wanbench` counts the steps of: hooks torch's optimizers.

Python imports `sitecustomize` at its start. Torch is not imported here: the hook is registered when the program
does. The `sitecustomize` that this one hides is run as well.
"""

from __future__ import annotations

import atexit
import importlib.util
import sys
import time
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_HOOKED = "torch.optim.optimizer"
_COUNTER = "wanbench.workloads.loop.stepping"
_LET_GO_S = 0.1


def _run_the_hidden_one() -> None:
    paths = [path for path in sys.path if Path(path or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _counter() -> ModuleType:
    """`workloads.loop.stepping` by its file: the program may have no wanbench. One that has it meets this one."""
    if _COUNTER not in sys.modules:
        spec = importlib.util.spec_from_file_location(_COUNTER, _HERE.parent / "stepping.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[_COUNTER] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[_COUNTER]


class _Hooking(Loader):
    """Loads torch's module as its own loader would, then registers the hook."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        counter = _counter()
        module.register_optimizer_step_post_hook(
            lambda optimizer, *_: counter.stepped_by_optimizer(optimizer.param_groups)
        )


class _WhenTorchIsImported(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _HOOKED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Hooking(spec.loader)
        return spec


def _let_threads_go() -> None:
    """gloo's threads drop their last operation's Python objects some time after the program has seen it end.

    If the interpreter ends meanwhile the process aborts ("terminate called without an active exception", status 134;
    pytorch/pytorch#179291), in one of ten short programs on four ranks. A sleep hands them the GIL while there is one.
    """
    if "torch.distributed" in sys.modules:
        time.sleep(_LET_GO_S)


atexit.register(_let_threads_go)
sys.meta_path.insert(0, _WhenTorchIsImported())
_run_the_hidden_one()
