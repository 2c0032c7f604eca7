"""Fixtures: a working folder for commands, on a host that can emulate networks."""

from __future__ import annotations

import os

import pytest
from benches import bench, shared_bench  # noqa: F401
from installed_fixtures import editable, installed, project, wheel  # noqa: F401

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
