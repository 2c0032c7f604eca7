"""Fixtures: a daemon, an image that needs no registry, and a working folder for commands.

make test-docker        with the running daemon, or as root with a private one
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import host_image
import pytest
from benches import timed
from docker import APIClient
from docker_bench import TOLERANT, DockerBench

from wanbench.harness.emulators.choice import why_no_relay
from wanbench.harness.testbeds.docker.daemon import Daemon, why_not


@pytest.fixture(scope="session", autouse=True)
def _lane() -> None:
    """If containers cannot run, skip with the reason and the remedy, or fail if they are required."""
    missing = why_not() or why_no_relay("containers")
    if missing is None:
        return
    if "docker" in os.environ.get("WANBENCH_REQUIRE", "").split(","):
        pytest.fail(f"these tests must run here: {missing}")
    pytest.skip(f"{missing}; or as root: make test-docker")


@pytest.fixture(scope="session")
def api(_lane: None) -> Iterator[APIClient]:
    client = APIClient(base_url=Daemon().address, version="auto")
    yield client
    client.close()


@pytest.fixture(scope="session", autouse=True)
def image(api: APIClient) -> Iterator[str]:
    """Return the image that the containers of these tests run by default."""
    name = f"wanbench-test-{os.getpid()}"
    host_image.make(api, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANBENCH_IMAGE", name)
        yield name
    api.remove_image(name, force=True)


@pytest.fixture
def bench(tmp_path: Path, api: APIClient, image: str, request: pytest.FixtureRequest) -> Iterator[DockerBench]:
    here = DockerBench(tmp_path, api, image)
    if not timed(request):
        here.program = TOLERANT
    yield here
    here.close()


@pytest.fixture(scope="module")
def shared_bench(
    tmp_path_factory: pytest.TempPathFactory, api: APIClient, image: str, request: pytest.FixtureRequest
) -> Iterator[DockerBench]:
    """Return one bench for all tests of a file that read the same run."""
    here = DockerBench(tmp_path_factory.mktemp("bench"), api, image)
    if not timed(request):
        here.program = TOLERANT
    yield here
    here.close()
