"""Removes a run's containers, however the run ends.

    python -m wanbench.harness.testbeds.docker.janitor RUN FD

Reads names of containers to remove from FD, one a line; at end of file, which comes with the controller's death as
well, removes every container that carries the label of RUN. A session of its own keeps it from signals to the
controller's group, so that it outlives Ctrl-C and `kill -9`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from wanbench.harness.process import child

if TYPE_CHECKING:
    from wanbench.harness.testbeds.docker.daemon import Daemon

_TRIES_S = 30.0
_SETTLE_S = 0.3  # a container that the daemon was making for the controller when that died
_EXIT_TIMEOUT_S = 40.0


class Janitor:
    """The process, as the controller sees it."""

    def __init__(self, run: str) -> None:
        read_end, self._write_end = os.pipe2(os.O_CLOEXEC)
        self._process = subprocess.Popen(
            child.command("wanbench.harness.testbeds.docker.janitor", run, str(read_end)),
            pass_fds=[read_end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=child.same_path(),
        )
        os.close(read_end)

    def remove(self, container: str) -> None:
        """Kill and remove a container soon; returns at once."""
        with suppress(OSError):
            os.write(self._write_end, f"{container}\n".encode())

    def close(self) -> bool:
        """Remove whatever is left of the run; true once it is gone."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
        try:
            return self._process.wait(_EXIT_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def main() -> None:
    """Entry of the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run, lines = sys.argv[1], os.fdopen(int(sys.argv[2]))
    for line in lines:
        with suppress(Exception):  # at the end of file there is another chance
            _daemon().remove(line.strip())
    reason = _remove_all(run)
    if reason is not None:
        print(f"wanbench: containers of {run} are left: {reason}; remove them with: wanbench clean", file=sys.stderr)
        sys.exit(1)


@cache
def _daemon() -> Daemon:
    from wanbench.harness.testbeds.docker.daemon import Daemon  # takes a third of a second, and may never be needed

    return Daemon()


def _remove_all(run: str) -> str | None:
    """Until nothing of the run is left; else why not."""
    deadline, seen_none = time.monotonic() + _TRIES_S, False
    while True:
        reason = None
        try:
            left = _daemon().of_run(run)
            if not left and seen_none:
                return None
            seen_none = not left
            for container in left:
                _daemon().remove(container["Id"])
        except Exception as error:
            reason = str(error)
        if time.monotonic() > deadline:
            return reason or "they cannot be removed"
        time.sleep(_SETTLE_S)


if __name__ == "__main__":
    main()
