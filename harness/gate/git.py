"""Commits in git."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.errors import HostError
from wanbench.harness.process.git import git

_FORMAT = "--format=%H%x00%cI%x00%s"
_LONGEST = 200  # characters of a subject


class Commit(NamedTuple):
    """A commit: its full hash, its date (ISO 8601) and the first line of its message."""

    hash: str
    date: str
    subject: str


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
