"""Our own modules in a child process, which finds the same packages as this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import wanbench

_PACKAGES = str(Path(wanbench.__file__).resolve().parents[1])


def command(module: str, *arguments: str) -> list[str]:
    """Run a module of ours; -P keeps the working folder, whose files may have any names, out of its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process's, with the folder in which wanbench lies first."""
    path = filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def same_path() -> dict[str, str]:
    """This process's environment, and every folder from which it imports: a user's modules too."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
