"""Remove a run's containers, however the run ends.

    python -m wanbench.harness.testbeds.docker.janitor RUN FD

The process reads the names of containers to remove from FD, one per line. At end of file, which the controller's death
causes as well, it removes every container with the label of RUN. It has its own session, so signals to the
controller's group do not reach it, and it survives Ctrl-C and `kill -9`.
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
_SETTLE_S = 0.3  # time for the daemon to finish a container that it was creating when the controller died
_EXIT_TIMEOUT_S = 40.0


class Janitor:
    """The controller's side of the janitor process."""

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
        """Request the removal of a container. Returns at once."""
        with suppress(OSError):
            os.write(self._write_end, f"{container}\n".encode())

    def close(self) -> None:
        """Remove all remaining containers of the run. The process says if it could not."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run, lines = sys.argv[1], os.fdopen(int(sys.argv[2]))
    for line in lines:
        with suppress(Exception):  # it is tried again at end of file
            _daemon().remove(line.strip())
    reason = _remove_all(run)
    if reason is not None:
        print(f"wanbench: cannot remove all containers of {run}: {reason}; run: wanbench clean", file=sys.stderr)
        sys.exit(1)


@cache
def _daemon() -> Daemon:
    from wanbench.harness.testbeds.docker.daemon import Daemon  # takes a third of a second, and is rarely needed

    return Daemon()


def _remove_all(run: str) -> str | None:
    """Remove all containers of a run. Return None, or the reason why some remain."""
    deadline, seen_none = time.monotonic() + _TRIES_S, False
    while True:
        reason = None
        try:
            containers = _daemon().of_run(run)
            if not containers and seen_none:
                return None
            seen_none = not containers
            for container in containers:
                _daemon().remove(container["Id"])
        except Exception as error:
            reason = str(error)
        if time.monotonic() > deadline:
            return reason or "the daemon still lists them"
        time.sleep(_SETTLE_S)


if __name__ == "__main__":
    main()
