"""Fixtures: working folders for commands.

Tests marked `timed` make a claim about time, so they need valid repetitions. Other tests accept late packets on a busy
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_session import TOLERANT, Bench


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    here = Bench(tmp_path)
    if not timed(request):
        here.program = TOLERANT
    yield here
    here.close()


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Return one bench for all tests of a file that read the same run."""
    here = Bench(tmp_path_factory.mktemp("bench"))
    if not timed(request):
        here.program = TOLERANT
    yield here
    here.close()


def timed(request: pytest.FixtureRequest) -> bool:
    """Return whether the test, or the whole file for a module fixture, makes a claim about time."""
    return request.node.get_closest_marker("timed") is not None
