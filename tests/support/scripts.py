"""Files that are no package, as modules: benchmarks, and tests that state numbers."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    """The module of a file, by its path in the repository."""
    name = path.removesuffix(".py").replace("/", "_")
    spec = spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module
