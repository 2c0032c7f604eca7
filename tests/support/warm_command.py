"""A `wanbench` that starts immediately, forked from a process that has imported everything, and killed like any other.

As a program it reads command lines from stdin. For each it prints the process id, and then how it ended.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path


class WarmCommands:
    """Run commands one after the other in `folder`, with their output in `log`."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        with self.log.open("w") as log:
            self._parent = subprocess.Popen(
                [sys.executable, __file__],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = 0

    def start(self, *arguments: str) -> None:
        """Start a command."""
        self._parent.stdin.write(shlex.join(arguments) + "\n")
        self._parent.stdin.flush()
        self.pid = int(self._parent.stdout.readline())

    def kill(self) -> int:
        """Send SIGKILL, and return how the command ended: -9, or its exit code if it was faster."""
        os.kill(self.pid, signal.SIGKILL)  # until `wait` the process exists, if only as a zombie
        return self.wait()

    def wait(self) -> int:
        """Return the exit code of the command, or minus the signal that ended it."""
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def close(self) -> None:
        self._parent.communicate()


def serve() -> None:
    import pyarrow.parquet  # noqa: F401

    import wanbench.harness.api
    import wanbench.harness.cli.run_command
    import wanbench.harness.show.figures
    import wanbench.harness.show.tables
    import wanbench.harness.testbeds.virtual.simulate  # noqa: F401
    from wanbench.harness.cli import main

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            main(shlex.split(line), prog_name="wanbench")
        print(child, flush=True)
        sys.stdin.readline()  # the test needs the process no longer
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
