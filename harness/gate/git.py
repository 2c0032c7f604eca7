"""Commits, and the versions of a file in git."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from wanbench.harness.errors import HostError, SpecError
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


def versions(file: Path, revisions: str | None) -> tuple[list[tuple[Commit, str]], bool]:
    """Every committed version of a file, oldest first, and whether the clone is shallow, so that some are missing.

    Args:
        revisions: a range such as `v1.0..main`; None: all ancestors of HEAD.

    Raises:
        SpecError: the file is in no repository, has no version in the range, or there is no such revision.
        HostError: git is not installed.
    """
    if shutil.which("git") is None:
        raise HostError(f"{file}: reading its versions needs git; install it")
    folder = file.parent
    try:
        shallow = git("rev-parse", "--is-shallow-repository", cwd=folder) == "true"
    except (HostError, OSError):
        raise SpecError(
            f"{file}: not in a git repository, so it has no versions; name a file that is committed"
        ) from None
    place, wanted = f"./{file.name}", revisions or "HEAD"
    options = ("--reverse", "--diff-filter=AMT", "--no-show-signature", _FORMAT)
    try:
        if wanted.startswith("-"):  # git 2.39 takes no paths after --end-of-options
            raise HostError(f"git log: {wanted}: an option")
        log = git("log", *options, wanted, "--", place, cwd=folder)
    except HostError:
        raise SpecError(f"{wanted}: no such revision here; expected one, or a range such as v1.0..HEAD") from None
    if not log:
        raise SpecError(f"{file}: no version of it is committed in {wanted}; commit it, or name other revisions")
    found = [_commit(line) for line in log.split("\n")]
    return [(each, git("show", f"{each.hash}:{place}", cwd=folder)) for each in found], shallow


def _commit(line: str) -> Commit:
    name, date, subject = line.split("\0", 2)
    return Commit(name, date, subject[:_LONGEST])
