"""Fixtures: a working folder for commands, on a host that can emulate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_session import Bench

from wanbench.harness.errors import HostError
from wanbench.harness.run.host import check_host


@pytest.fixture(scope="session", autouse=True)
def _host_can_emulate() -> None:
    try:
        check_host([])
    except HostError as error:
        if "CI" in os.environ:
            pytest.fail(f"these tests must run in CI: {error}")
        pytest.skip(str(error))


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
