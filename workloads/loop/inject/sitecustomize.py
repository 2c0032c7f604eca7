"""Found first on PYTHONPATH by a user's program: notes its modules, counts steps of optimizers, and replaces gloo.

Python imports `sitecustomize` at its start. Torch is not imported here: its modules are changed when the program
imports them. The `sitecustomize` that this one hides is run as well.
"""

import atexit
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_REPLACES_GLOO = "WAN_REPLACES_GLOO"
_COUNTS_STEPS = "WANBENCH_COUNTS_STEPS"
_COUNTER = "wanbench.workloads.loop.stepping"
_LET_GO_S = 0.1


def _note_imports() -> None:
    """Note the modules of the user's that the program imports. Ours is loaded by its file, without wanbench."""
    imported = ModuleType("_wanbench_imported")
    SourceFileLoader(imported.__name__, str(_HERE.parents[1] / "imported.py")).exec_module(imported)
    with suppress(OSError):  # where the file for the notes is not, the command alone identifies the program
        imported.record_program()


def _run_the_hidden_one() -> None:
    paths = [path for path in sys.path if Path(path or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _wanbench(name: str) -> ModuleType:
    """A module of wanbench, by its file if the program has no wanbench. One that has it meets this one."""
    if "wanbench" not in sys.modules and importlib.util.find_spec("wanbench") is None:
        for package, folder in (("wanbench", None), ("wanbench.workloads", _HERE.parents[1])):
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = [] if folder is None else [str(folder)]
    return importlib.import_module(name)


def _count_steps(module: ModuleType) -> None:
    counter = _wanbench(_COUNTER)
    module.register_optimizer_step_post_hook(lambda optimizer, *_: counter.stepped_by_optimizer(optimizer))


def _replace_gloo(module: ModuleType) -> None:
    """Let torch make a `WanGroup` where it would make a group of gloo."""
    if os.environ.get(_REPLACES_GLOO) == "1" and module.distributed.is_available():
        module.distributed.distributed_c10d.ProcessGroupGloo = _wanbench("wanbench.workloads.group.group").WanGroup


_CHANGES = {"torch.optim.optimizer": _count_steps, "torch": _replace_gloo}


class _Changing(Loader):
    """Loads torch's module as its own loader would, then changes it."""

    def __init__(self, loader: Loader, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


class _WhenTorchIsImported(MetaPathFinder):
    def __init__(self) -> None:
        self._finding: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _CHANGES or fullname in self._finding:
            return None
        self._finding.add(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Changing(spec.loader, _CHANGES[fullname])
        return spec


def _let_threads_go() -> None:
    """gloo's threads drop their last operation's Python objects some time after the program has seen it end.

    If the interpreter ends meanwhile the process aborts ("terminate called without an active exception", status 134;
    pytorch/pytorch#179291), in one of ten short programs on four ranks. A sleep hands them the GIL while there is one.
    """
    if "torch.distributed" in sys.modules:
        time.sleep(_LET_GO_S)


_note_imports()
if _COUNTS_STEPS in os.environ or os.environ.get(_REPLACES_GLOO) == "1":
    atexit.register(_let_threads_go)
    sys.meta_path.insert(0, _WhenTorchIsImported())
_run_the_hidden_one()
