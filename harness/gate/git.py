"""Commits in git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.errors import HostError

_FORMAT = "--format=%H%x00%cI%x00%s"
_LONGEST = 200  # characters of a subject


class Commit(NamedTuple):
    """A commit: its full hash, its date (ISO 8601) and the first line of its message."""

    hash: str
    date: str
    subject: str


def git(*arguments: str, cwd: Path | None = None) -> str:
    """Run git and return its output. Raises: HostError with the message of git."""
    environment = {key: value for key, value in os.environ.items() if key not in {"GIT_DIR", "GIT_WORK_TREE"}}
    done = subprocess.run(["git", *arguments], cwd=cwd, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
    out, said = (stream.decode(errors="replace").strip() for stream in (done.stdout, done.stderr))
    if done.returncode:
        raise HostError(f"git {arguments[0]}: {said or f'status {done.returncode}'}")
    return out


def commit(revision: str, cwd: Path | None = None) -> Commit | None:
    """The commit of a revision; None if it is not known here, or without git."""
    if shutil.which("git") is None or revision.startswith("-"):
        return None
    try:
        return _commit(git("log", "-1", "--no-show-signature", _FORMAT, revision, "--", cwd=cwd))
    except HostError:
        return None


def _commit(line: str) -> Commit:
    name, date, subject = line.split("\0", 2)
    return Commit(name, date, subject[:_LONGEST])
