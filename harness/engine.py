"""Executes repetitions in slots, side by side: `submit(task) -> Future`, nothing more.

State lives in the run folder, never here. Each slot has one thread for the whole run: the relay that a slot
starts is tied to the life of the thread that started it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import TypeVar

from harness.testbeds.base import Slot, Testbed

_END_S = 5.0  # a task whose workers are dead ends at once

T = TypeVar("T")


class LocalEngine:
    """Slots on this host.

    Args:
        testbed: where slots come from; closed with the engine.
        slots: how many repetitions may run at a time.
    """

    def __init__(self, testbed: Testbed, slots: int) -> None:
        self._testbed = testbed
        self._tasks: queue.SimpleQueue[Callable[[Callable[[], Slot]], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, name=f"slot-{i}", daemon=True) for i in range(slots)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[Slot], T]) -> Future[T]:
        """Run `task` in the next free slot."""
        future: Future[T] = Future()

        def run(slot: Callable[[], Slot]) -> None:
            try:
                future.set_result(task(slot()))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(run)
        return future

    def close(self) -> None:
        """Kill what is running and remove everything. Running tasks end with an error nobody reads."""
        self._testbed.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=_END_S)
        self._testbed.close()

    def _serve(self) -> None:
        slot = cache(self._testbed.open_slot)  # by the first task, so that an error reaches its future
        while (task := self._tasks.get()) is not None:
            task(slot)
