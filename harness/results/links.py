"""Finds what a run's folder cannot contain: links, devices, pipes and sockets."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def strange(folder: Path) -> Iterator[str]:
    """Yield the paths below a folder that are neither files nor folders; of links, the target is not looked at.

    A listing names the types, so that no file has to be asked for: a large run has tens of thousands.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and _is_strange(entry.path):
                    yield entry.path


def _is_strange(path: str) -> bool:
    """Whether a path still exists, since the run can be under way, and is neither a file nor a folder."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        return not stat.S_ISDIR(mode) and not stat.S_ISREG(mode)
    return False
