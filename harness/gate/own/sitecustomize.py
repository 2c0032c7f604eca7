"""Found first on PYTHONPATH by the Python processes of a side: they import the side's own files, and record which.

An editable install, a .pth file or an absolute PYTHONPATH leads every process to one checkout, whichever it belongs to.
So a module of another checkout of the repository, or a copy that was installed from one, is loaded from the side's own.
The record has a line for each module of a checkout that is imported. The `sitecustomize` that this one hides is run.
"""

import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT, _OTHERS, _RECORD = json.loads(os.environ["WAN_OWN_FILES"])
_CHECKOUTS = sorted([_ROOT, *_OTHERS], key=len, reverse=True)  # one can lie inside another


def _own(name: str, file: str) -> str | None:
    """The place in the side's own checkout of a module of any checkout; None for other modules."""
    if "/site-packages/" in file:
        sources = f"{_ROOT}/src/{name}/__init__.py", f"{_ROOT}/src/{name}.py"
        return next(filter(os.path.isfile, sources), None)
    top = next((top for top in _CHECKOUTS if file.startswith(f"{top}/")), None)
    return None if top is None else f"{_ROOT}{file.removeprefix(top)}"


class _OwnFiles:
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        finders = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if spec is None or not spec.has_location or spec.origin is None:
            return spec
        file = os.path.realpath(spec.origin)
        own = _own(name, file)
        if own is None:
            return spec
        if own != file and os.path.isfile(own):
            file, inside = own, spec.submodule_search_locations is not None
            folders = [os.path.dirname(own)] if inside else None
            spec = importlib.util.spec_from_file_location(name, own, submodule_search_locations=folders)
        with open(_RECORD, "a", encoding="utf-8") as record:
            record.write(f"{json.dumps(file)}\n")
        return spec


def _run_the_hidden_one() -> None:
    folders = [os.path.abspath(folder) for folder in sys.path]
    spec = PathFinder.find_spec("sitecustomize", folders[folders.index(_HERE) + 1 :])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _OwnFiles())
_run_the_hidden_one()
