"""`wanbench` with containers, as its users run it."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import host_image
from cli_session import Bench
from docker import APIClient
from docker.errors import NotFound

PROGRAM = [sys.executable, str(Path(host_image.__file__))]
_OTHERWISE = f"import sys; sys.path.insert(0, {str(Path(host_image.__file__).parent)!r}); import host_image; "
_OTHERWISE += "import wanbench.harness.rep.train as r, wanbench.harness.rep.command as c; "
# The same command on a host that others use: a crash is a crash however late packets were.
_TOLERANT = _OTHERWISE + "r.judge = c.judge = lambda *_: []; "
TOLERANT = [sys.executable, "-c", _TOLERANT + "host_image.main()"]
# With less patience for workers that say nothing as well.
IMPATIENT = [sys.executable, "-c", _TOLERANT + "r.PATIENCE_S = 2.0; host_image.main()"]


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
