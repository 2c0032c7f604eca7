"""Run `wanbench` with containers, as users do."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import host_image
from cli_session import Bench
from docker import APIClient
from docker.errors import NotFound

_FILES = f"import os, sys; sys.path.insert(0, {str(Path(host_image.__file__).parent)!r}); import host_image; "
PROGRAM = [sys.executable, "-P", "-c", _FILES + "host_image.main()"]
_OTHERWISE = _FILES + "os.environ['WANBENCH_AWAKE'] = 'off'; "
_OTHERWISE += "import wanbench.harness.rep.measure as r, wanbench.harness.rep.command as c; "
# The same command for a busy host: tests of crashes accept late packets.
_TOLERANT = _OTHERWISE + "r.judge = c.judge = r.judge_pauses = c.judge_pauses = lambda *_: []; "
TOLERANT = [sys.executable, "-P", "-c", _TOLERANT + "host_image.main()"]
# The same, with less patience for silent workers.
IMPATIENT = [
    sys.executable,
    "-P",
    "-c",
    _TOLERANT + "import wanbench.harness.plan.repetition as p; p.PATIENCE_S = 5.0; host_image.main()",
]


class DockerBench(Bench):
    """A working folder and a `wanbench` whose containers see the host's files."""

    program = PROGRAM

    def __init__(self, folder: Path, api: APIClient, image: str) -> None:
        super().__init__(folder)
        self.api, self.image = api, image

    def containers(self) -> list[dict]:
        """Return every container of the daemon, in any state, as `docker inspect` shows it."""
        found = []
        for listed in self.api.containers(all=True):
            with contextlib.suppress(NotFound):  # removed in between
                found.append(self.api.inspect_container(listed["Id"]))
        return found

    def training(self, algorithm: str, containers: list[dict] | None = None) -> dict[int, dict]:
        """Return which containers (of these, or of all) train this algorithm, by rank: they write its logs."""
        found = {}
        for container in self.containers() if containers is None else containers:
            with contextlib.suppress(OSError):
                log = Path(os.readlink(f"/proc/{container['State']['Pid']}/fd/1"))
                if f"/cells/{algorithm}-w" in str(log):
                    found[int(log.stem.rpartition("-")[2])] = container
        return found
