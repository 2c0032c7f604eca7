"""Executes repetitions in slots, side by side: `submit(task) -> Future`, nothing more.

State lives in the run folder, never here. Each thread keeps one slot of every kind that its tasks ask for, for
the whole run: the emulator that a slot starts is tied to the life of the thread that started it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from harness.testbeds.base import Slot, Testbed

_END_S = 5.0  # a task whose workers are dead ends at once

T = TypeVar("T")


class Kind(NamedTuple):
    """What a repetition runs on, by name."""

    testbed: str
    emulator: str


Slots = Callable[[Kind], Slot]


class LocalEngine:
    """Slots on this host.

    Args:
        open_testbed: starts the testbed of a name; called once for each name, closed with the engine.
        slots: how many repetitions may run at a time.
    """

    def __init__(self, open_testbed: Callable[[str], Testbed], slots: int) -> None:
        self._open_testbed = open_testbed
        self._opening = threading.Lock()
        self._testbeds: dict[str, Testbed] = {}
        self._tasks: queue.SimpleQueue[Callable[[Slots], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, name=f"slot-{i}", daemon=True) for i in range(slots)]
        for thread in self._threads:
            thread.start()

    def submit(self, kind: Kind, task: Callable[[Slot], T]) -> Future[T]:
        """Run `task` in the next free slot of this kind."""
        future: Future[T] = Future()

        def run(slots: Slots) -> None:
            try:
                future.set_result(task(slots(kind)))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(run)
        return future

    def close(self) -> None:
        """Kill what is running and remove everything. Running tasks end with an error nobody reads."""
        for testbed in self._testbeds.values():
            testbed.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=_END_S)
        for testbed in self._testbeds.values():
            testbed.close()

    def _serve(self) -> None:
        mine: dict[Kind, Slot] = {}

        def slot(kind: Kind) -> Slot:  # within a task, so that an error reaches its future
            if kind not in mine:
                mine[kind] = self._testbed(kind.testbed).open_slot(kind.emulator)
            return mine[kind]

        while (task := self._tasks.get()) is not None:
            task(slot)

    def _testbed(self, name: str) -> Testbed:
        with self._opening:
            if name not in self._testbeds:
                self._testbeds[name] = self._open_testbed(name)
            return self._testbeds[name]
