"""Redraws the figures while results come in, in a process with the lowest priority."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from wanbench.harness.process import child
from wanbench.workloads.process.namespace import die_with_parent

_EVERY_S = 20.0
_SHARE = 0.1  # of the time, at most: drawing takes a second, and with thousands of repetitions minutes


class Redrawer:
    """Starts at most one drawing process at a time, with pauses."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder
        self._process: subprocess.Popen[bytes] | None = None
        self._last, self._every_s = time.monotonic(), _EVERY_S

    def changed(self) -> None:
        """Redraw the figures for a new result, unless they were redrawn just now."""
        since_s = time.monotonic() - self._last
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process, self._every_s = None, max(_EVERY_S, since_s / _SHARE)
        if since_s < self._every_s:
            return
        self._last = time.monotonic()
        parent = os.getpid()
        command = child.command("wanbench.harness.cli", "figures", str(self._folder), "--formats", "png")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: _modest(parent),
        )

    def close(self) -> None:
        """End the drawing process, if there is one."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def _modest(parent: int) -> None:
    """Give this child process the lowest priority, and end it with the run."""
    die_with_parent(parent)
    os.nice(19)
