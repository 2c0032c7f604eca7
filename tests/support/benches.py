"""Fixtures: working folders for commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_session import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    here = Bench(tmp_path)
    yield here
    here.close()


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all tests of a file that look at the same run."""
    here = Bench(tmp_path_factory.mktemp("bench"))
    yield here
    here.close()
