"""The folders of the host that a program's containers see: the current folder, and those of --mount."""

import os
import shlex
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.harness.testbeds.base import FolderMount
from wanbench.harness.testbeds.docker.containers import worker_ids

# Folders of the image that must not be hidden, because they hold its system or our worker.
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
    """Mount the user's working folder at its own path, read-only.

    Raises:
        SpecError: it would hide a folder of the image, or containers cannot read it.
    """
    if _hides(folder):
        raise SpecError(
            f"{folder}: the image has its own folder there; change to a folder of your project, or name a folder of "
            "the image with --workdir"
        )
    uid, _ = worker_ids()
    if uid != os.getuid() and folder.stat().st_mode & _READ_BY_ALL != _READ_BY_ALL:
        raise SpecError(
            f"{folder}: root's containers run as user {uid}, who cannot read it; run: chmod o+rx "
            f"{shlex.quote(str(folder))}, run as another user, or name a folder of the image with --workdir"
        )
    return FolderMount(folder, folder)


def parse(text: str) -> FolderMount:
    """Parse SOURCE[:TARGET][:rw], as `docker run --volume` takes it. Raises: SpecError."""
    parts = text.split(":")
    mode = parts.pop() if parts[-1] in ("ro", "rw") else "ro"
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise SpecError(f"--mount {text}: expected SOURCE[:TARGET][:rw], e.g. --mount ~/data:/data")
    source = Path(os.path.abspath(Path(parts[0]).expanduser()))
    if not source.exists():
        raise SpecError(f"--mount {text}: {source} does not exist")
    target = Path(parts[-1]) if len(parts) == 2 else source
    if not target.is_absolute() or ".." in target.parts:
        raise SpecError(f"--mount {text}: expected an absolute path in the containers, got {parts[-1]!r}")
    if _hides(target):
        raise SpecError(f"--mount {text}: the image has its own folder at {target}; choose another target")
    return FolderMount(source, target, mode == "rw")


def _hides(folder: Path) -> bool:
    return str(folder) in _TOP or folder.parts[1] in _SYSTEM
