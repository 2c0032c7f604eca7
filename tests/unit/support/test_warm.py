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
