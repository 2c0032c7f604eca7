"""Fixtures: a daemon, an image that needs none, and a working folder for commands.

make test-docker        with the daemon that runs, or as root with a private one
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import host_image
import pytest
from cli_session import Bench
from docker import APIClient
from docker.errors import NotFound

from wanbench.harness.emulators.choice import why_no_relay
from wanbench.harness.testbeds.docker.daemon import Daemon, why_not

PROGRAM = [sys.executable, str(Path(host_image.__file__))]
_OTHERWISE = f"import sys; sys.path.insert(0, {str(Path(host_image.__file__).parent)!r}); import host_image; "
_OTHERWISE += "import wanbench.harness.rep.train; "
# The same command on a host that others use: a crash is a crash however late packets were.
_TOLERANT = _OTHERWISE + "wanbench.harness.rep.train.judge = lambda *_: []; "
TOLERANT = [sys.executable, "-c", _TOLERANT + "host_image.main()"]
# With less patience for workers that say nothing as well.
IMPATIENT = [sys.executable, "-c", _TOLERANT + "wanbench.harness.rep.train.PATIENCE_S = 2.0; host_image.main()"]


@pytest.fixture(scope="session", autouse=True)
def _lane() -> None:
    """Skip with the reason and the remedy where containers cannot run; fail where they must."""
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
    """What the containers of these tests run unless they say otherwise."""
    name = f"wanbench-test-{os.getpid()}"
    host_image.make(api, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANBENCH_IMAGE", name)
        yield name
    api.remove_image(name, force=True)


class DockerBench(Bench):
    """A working folder with a `wanbench` whose containers see the host's files."""

    program = PROGRAM

    def __init__(self, folder: Path, api: APIClient, image: str) -> None:
        super().__init__(folder)
        self.api, self.image = api, image

    def containers(self) -> list[dict]:
        """Every container of the daemon, in any state, as `docker inspect` shows it."""
        found = []
        for listed in self.api.containers(all=True):
            with contextlib.suppress(NotFound):  # meanwhile removed
                found.append(self.api.inspect_container(listed["Id"]))
        return found

    def training(self, algorithm: str) -> dict[int, dict]:
        """The containers that train this algorithm by rank: their processes print into its logs."""
        found = {}
        for container in self.containers():
            with contextlib.suppress(OSError):
                log = Path(os.readlink(f"/proc/{container['State']['Pid']}/fd/1"))
                if f"/cells/{algorithm}-w" in str(log):
                    found[int(log.stem.rpartition("-")[2])] = container
        return found


@pytest.fixture
def bench(tmp_path: Path, api: APIClient, image: str) -> Iterator[DockerBench]:
    here = DockerBench(tmp_path, api, image)
    yield here
    here.close()


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory, api: APIClient, image: str) -> Iterator[DockerBench]:
    """One for all tests of a file that look at the same run."""
    here = DockerBench(tmp_path_factory.mktemp("bench"), api, image)
    yield here
    here.close()
