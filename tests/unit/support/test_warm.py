"""A program that is forked from a warm process runs as one that was started."""

from __future__ import annotations

import os

import pytest
from warm import Warm


@pytest.fixture
def kept():
    """Restore the processors of this process."""
    processors = os.sched_getaffinity(0)
    yield processors
    os.sched_setaffinity(0, processors)


def test_it_has_the_processors_of_the_process_that_starts_it_now(kept):
    for processors in (kept, {min(kept)}, {max(kept)}):
        os.sched_setaffinity(0, processors)
        out, _ = Warm("import os; print(sorted(os.sched_getaffinity(0)))", err=2).communicate(60)
        assert out == f"{sorted(processors)}\n"


STARTS = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
command = [sys.executable, "-P", "-m", "wanbench.workloads.process.forkserver", str(theirs.fileno()), str(os.getpid())]
child = subprocess.Popen([*command, "json"], pass_fds=[theirs.fileno()])
theirs.close()
assert b"ready" in ours.recv(4096)
shown, maps = (open(f"/proc/{child.pid}/{name}", "rb").read() for name in ("cmdline", "maps"))
print(shown.decode().rstrip("\\0").split("\\0") == [*command, "json"], b"libtorch" in maps)
ours.close()
print(child.wait())
"""


def test_what_it_starts_for_workers_has_imported_torch_and_is_shown_as_a_program():
    out, _ = Warm(STARTS, err=2).communicate(60)
    assert out == "True True\n0\n"
