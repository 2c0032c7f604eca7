"""Run our own modules in a child process that finds the same packages as this one."""

import os
import sys
from pathlib import Path

import wanbench

_PACKAGES = str(Path(wanbench.__file__).resolve().parents[1])


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules. -P keeps the working folder, which can have any files, off its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def folders() -> tuple[Path, ...]:
    """The folders that our own modules, and Python, are in."""
    return Path(_PACKAGES), Path(sys.prefix), Path(sys.base_prefix)


def environment() -> dict[str, str]:
    """This process's environment, with wanbench's folder first in PYTHONPATH."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))}


def same_path() -> dict[str, str]:
    """This process's environment, with all its import folders in PYTHONPATH, so that a user's modules are found."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
