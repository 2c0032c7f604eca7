"""Which modules of a user this process has imported, with the digests of the very bytes that it runs.

A module is the user's unless it is wanbench's, Python's own, or installed in `site-packages`; so that of an editable
install is. The bytes that are hashed are those that are compiled. Python's cache of compiled modules is not used for
them, because its check (time and size) does not see each edit. An extension is hashed just before it is loaded.

The notes are lines of a file, so those of processes that this one forks are among them. This module also runs inside
users' programs, so it uses the standard library only.
"""

import hashlib
import json
import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import ModuleType

NOTES_FILE = "WANBENCH_IMPORTS_FILE"
"""Environment variable of a program: the file in which its processes note what they import."""

_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_INSTALLED = {"site-packages", "dist-packages"}
_PROGRAMS = (os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin")

_notes = os.devnull
_get_data = SourceFileLoader.get_data
_create_module = ExtensionFileLoader.create_module


def record(path: str | None = None) -> None:
    """Note all modules of the user's that are imported from now on, and those that were noted before.

    Args:
        path: append the notes to this file; None: to one without a name.
    """
    global _notes
    before, _notes = _read(_notes), path or f"/proc/self/fd/{os.memfd_create('imports')}"
    _append(before)
    SourceFileLoader.get_data = SourcelessFileLoader.get_data = _noted_data  # type: ignore[assignment,method-assign]
    ExtensionFileLoader.create_module = _noted_extension  # type: ignore[assignment,method-assign]


def record_program() -> None:
    """Begin in a user's program, if its environment asks for it, with its script, which is read without an import."""
    if (path := os.environ.get(NOTES_FILE)) is not None:
        record(path)
        script = os.path.abspath(sys.argv[0])
        if os.path.isfile(script) and is_users(script):
            _note("__main__", script, _read(script))


def noted(path: str | None = None) -> list[tuple[str, str, str]]:
    """Return (module, absolute path, SHA-256) of all that was noted, sorted; several of a path whose bytes changed.

    Args:
        path: a file with notes, which exists once Python has run; None: those of this process.
    """
    lines = _read(path or _notes).splitlines() if path is None or os.path.exists(path) else []
    whole = {line for line in lines if line.endswith(b"]")}  # not of a program that was killed in the middle of one
    return sorted(tuple(json.loads(line)) for line in whole)


def is_users(path: str) -> bool:
    """Whether a file is neither Python's own nor of an installed package, which versions identify."""
    own = path.startswith(_STANDARD_LIBRARY) or os.path.dirname(path) in _PROGRAMS
    return not own and _INSTALLED.isdisjoint(path.split(os.sep))


def _noted_data(loader: SourceFileLoader | SourcelessFileLoader, path: str) -> bytes:
    counts = _counts(loader)
    if counts and path != loader.path and path.endswith(".pyc"):
        raise OSError("compiled from source that may differ")  # Python then compiles the source
    data = _get_data(loader, path)
    if counts and path == loader.path:
        _note(loader.name, path, data)
    return data


def _noted_extension(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
    if _counts(loader):
        _note(loader.name, loader.path, _read(loader.path))
    return _create_module(loader, spec)


def _counts(loader: SourceFileLoader | SourcelessFileLoader | ExtensionFileLoader) -> bool:
    return loader.name.partition(".")[0] != "wanbench" and is_users(loader.path)


def _note(module: str, path: str, content: bytes) -> None:
    _append(json.dumps([module, os.path.abspath(path), hashlib.sha256(content).hexdigest()]).encode() + b"\n")


def _append(lines: bytes) -> None:
    with open(_notes, "ab", buffering=0) as file:
        file.write(lines)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
