"""Executes simulated repetitions beside the emulated ones: in one thread, because they share the interpreter."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wanbench.harness.plan.cell import Cell


class Simulator:
    """One simulation at a time; nothing is started for it, and nothing is left behind."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simulator")

    def submit(self, cell: Cell, rep: int, folder: Path) -> Future[dict[str, Any]]:
        """The row of this repetition, or RepFailed; `folder` takes its files."""
        return self._thread.submit(self._measure, cell, rep, folder)

    def close(self) -> None:
        """End what is being simulated."""
        self._stopped.set()
        self._thread.shutdown(cancel_futures=True)

    def _measure(self, cell: Cell, rep: int, folder: Path) -> dict[str, Any]:
        from wanbench.harness.testbeds.virtual.rep import (
            measure_virtual,
        )  # torch takes seconds, which the user can interrupt here

        return measure_virtual(cell, rep, folder, self._stopped)
