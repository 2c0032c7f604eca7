"""Which files of the host the containers of a program see: the current folder, and what is asked for."""

from __future__ import annotations

import os
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.harness.testbeds.base import FolderMount
from wanbench.harness.testbeds.docker.containers import worker_ids

# An image's own; the host's in their place would take its system or our worker away.
_SYSTEM = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "wanbench",
)
_READ_BY_ALL = 0o005
_TOP = ("/", "/opt", "/root", "/tmp", "/var")


def current(folder: Path) -> FolderMount:
    """The user's working folder, to be read at its own path.

    Raises:
        SpecError: it would hide the image's own, or containers may not read it.
    """
    if _hides(folder):
        raise SpecError(
            f"{folder}: containers have a folder of their own there; go to a folder of your project, or name one of "
            "the image with --workdir"
        )
    uid, _ = worker_ids()
    if uid != os.getuid() and folder.stat().st_mode & _READ_BY_ALL != _READ_BY_ALL:
        raise SpecError(
            f"{folder}: root's containers run as user {uid}, who may not read it; chmod o+rx {folder}, run as another "
            "user, or name a folder of the image with --workdir"
        )
    return FolderMount(folder, folder)


def parse(text: str) -> FolderMount:
    """SOURCE[:TARGET][:rw], as `docker run --volume` has it. Raises: SpecError."""
    parts = text.split(":")
    mode = parts.pop() if parts[-1] in ("ro", "rw") else "ro"
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise SpecError(f"--mount {text}: expected SOURCE[:TARGET][:rw], e.g. --mount ~/data:/data")
    source = Path(os.path.abspath(Path(parts[0]).expanduser()))
    if not source.exists():
        raise SpecError(f"--mount {text}: {source} is not there")
    target = Path(parts[-1]) if len(parts) == 2 else source
    if not target.is_absolute() or ".." in target.parts:
        raise SpecError(f"--mount {text}: expected an absolute path in the containers, got {parts[-1]!r}")
    if _hides(target):
        raise SpecError(f"--mount {text}: containers have a folder of their own at {target}; choose another target")
    return FolderMount(source, target, mode == "rw")


def _hides(folder: Path) -> bool:
    return str(folder) in _TOP or folder.parts[1] in _SYSTEM
