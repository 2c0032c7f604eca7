"""The code that a repetition ran: wanbench's own, and all of the user's, as it was when it was imported.

A row stores a digest by name. A module that is found on the import path has the name of its import, so that it is
looked for where an import would find it now. Any other file, such as one beside a command's script, has its path, from
the folder of the command or the working folder on.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path

from wanbench.harness.plan.repetition import Inputs
from wanbench.harness.results import digests
from wanbench.harness.spec.command import files
from wanbench.harness.testbeds import contained
from wanbench.workloads.process.finished import Finished
from wanbench.workloads.registry import data_digest

OWN_CODE, DATA = "wanbench itself", "the data set"
_ROOT = Path(__file__).resolve().parents[2]
# Code that influences a measurement. Code that draws or prints does not.
_PATTERNS = (
    "workloads/**/*.py",
    "netprofiles/*.py",
    "harness/emulators/**/*.py",
    "harness/testbeds/**/*.py",
    "harness/timeline/*.py",
    "harness/plan/pacing.py",
    "harness/plan/repetition.py",
    "harness/rep/*.py",
    "harness/results/row.py",
)
_MEASURING = [path for pattern in _PATTERNS for path in sorted(_ROOT.glob(pattern))]
_LENGTH = 12
_TICK_NS = 100_000_000  # more than the resolution of a file's times

Sources = dict[str, str]


def code_hash(sources: Mapping[str, str]) -> str:
    """The hash that stands for all of it in a row."""
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:_LENGTH]


def sources_before(inputs: Inputs) -> Sources:
    """What is known before a repetition: our code, data that differ between hosts, and files that a command names."""
    own = {_path(inputs, path): digest(path) for path in files(inputs.command, inputs.folder)}
    data = None if inputs.workload is None else data_digest(inputs.workload)
    if data is not None:
        own[DATA] = data[:_LENGTH]
    return {OWN_CODE: _own_code(int(time.monotonic()))} | own


def used(inputs: Inputs, before: Sources, reports: Iterable[Finished]) -> tuple[Sources, list[str]]:
    """What a repetition ran, and, if code changed meanwhile, the reason why its result is void.

    A file of data that its command names and that changed meanwhile is its output, and left out.

    Args:
        before: from `sources_before`. reports: the last message of each worker, with its imports.
    """
    ran = dict(before)
    for name, short in named(inputs, sorted({tuple(entry) for report in reports for entry in report.imports})):
        if ran.setdefault(name, short) != short:
            return ran, [f"{name}: its processes ran different versions of it"]
    now = current(inputs, ran)
    written = {name for name in before if now[name] not in ("", ran[name])} - {OWN_CODE, DATA}
    output = {name for name in written if not _is_program(inputs.folder / name)}
    ran = {name: short for name, short in ran.items() if name not in output}
    other = next((name for name in ran if now[name] != ran[name]), None)
    return ran, [] if other is None else [f"{other} changed while it was measured"]


def _is_program(path: Path) -> bool:
    return path.suffix in (".py", ".sh") or os.access(path, os.X_OK)


def changed(inputs: Inputs, ran: Mapping[str, str]) -> str | None:
    """The first of the sources of which this host has another version now; None if it has none."""
    now = current(inputs, ran)
    return next((name for name in ran if now[name] != ran[name]), None)


def current(inputs: Inputs, ran: Mapping[str, str]) -> Sources:
    """The same sources as this host has them now. What only the image of a container has is taken to be the same."""
    now = sources_before(inputs)
    for name in ran.keys() - now.keys():
        file = _located(name) or inputs.folder / name
        now[name] = ran[name] if contained(inputs.testbed) and not file.exists() else digest(file)
    return now


def named(inputs: Inputs, imports: Iterable[tuple[str, ...]]) -> list[tuple[str, str]]:
    """Imported modules, from (module, path, SHA-256), as sources."""
    return [(_name(inputs, module, path), whole[:_LENGTH]) for module, path, whole in imports]


def digest(path: Path) -> str:
    """The digest of a file; empty if there is none. It is read again once it has changed."""
    if not path.is_file():
        return ""
    status = path.stat()
    recent_ns = max(0, status.st_ctime_ns + _TICK_NS - time.time_ns())  # another edit could have the same times
    return _digest(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, recent_ns)


@lru_cache(maxsize=1024)
def _digest(path: Path, *_: int) -> str:
    return digests.digest(path)[:_LENGTH]


@lru_cache(maxsize=1)
def _own_code(second: int) -> str:
    """The hash of the code that measures. It is taken once a second: to look at so many files takes milliseconds."""
    code = {path.relative_to(_ROOT).as_posix(): digest(path) for path in _MEASURING}
    return code_hash(code | {"torch": version("torch")})


def _name(inputs: Inputs, module: str, path: str) -> str:
    there = None if module.startswith("__") else _located(module)
    same = there is not None and os.path.realpath(there) == os.path.realpath(path)
    return module if same else _path(inputs, Path(path))


def _path(inputs: Inputs, path: Path) -> str:
    return str(path.relative_to(inputs.folder) if path.is_relative_to(inputs.folder) else path)


def _located(module: str) -> Path | None:
    """The file that an import of a module would find now. Nothing is imported to know that."""
    finders, path, spec = [*sys.meta_path], [*sys.path], None
    for part in module.split("."):
        spec = next(filter(None, (finder.find_spec(part, path) for finder in finders)), None)
        if spec is None:
            return None
        finders, path = [PathFinder()], [*(spec.submodule_search_locations or ())]
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
