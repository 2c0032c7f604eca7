"""Locks on NFS, which makes them locks of bytes: exclusive ones need a file open for writing, shared ones for reading.

A lock that a file system refuses counts as taken, so a file opened in the wrong way would not be locked at all.
"""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from wanbench.harness.results.store import RunLock

FLOCK = fcntl.flock


@pytest.fixture(autouse=True)
def nfs(monkeypatch):
    def flock(file, how):
        mode = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        if mode == (os.O_RDONLY if how & fcntl.LOCK_EX else os.O_WRONLY):
            raise OSError(errno.EBADF, "Bad file descriptor")
        FLOCK(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_one_process_prepares_a_run_and_then_others_join(tmp_path):
    with RunLock(tmp_path, alone=False) as first:
        first.share()
        with RunLock(tmp_path, alone=False) as second:
            assert (first.joined, second.joined) == (False, True)
            assert not first.is_last()
        assert first.is_last()
