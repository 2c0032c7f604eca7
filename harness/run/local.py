"""Executes repetitions in slots, side by side. The interface is `submit(task) -> Future`.

All state is in the run folder. Slots stay open for the whole run, and the slot that was used last is used next, because
its workers already run. The emulator of a slot ends with the thread that started it, so threads live as long as the
engine.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from wanbench.harness.testbeds.base import Slot, Testbed

_END_S = 5.0  # a task whose workers are dead ends at once

T = TypeVar("T")


class Kind(NamedTuple):
    """Names of the testbed and the emulator that a repetition runs on."""

    testbed: str
    emulator: str | None


class LocalEngine:
    """Slots on this host.

    Args:
        open_testbed: starts a testbed by name; called once per name. The testbed is closed with the engine.
        slots: maximum number of repetitions at a time.
    """

    def __init__(self, open_testbed: Callable[[str], Testbed], slots: int) -> None:
        self._open_testbed = open_testbed
        self._opening = threading.Lock()
        self._testbeds: dict[str, Testbed] = {}
        self._slots, self._opened = slots, Counter[Kind]()
        self._idle: dict[Kind, list[Slot]] = {}
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, name=f"slot-{i}", daemon=True) for i in range(slots)]
        for thread in self._threads:
            thread.start()

    def submit(self, kind: Kind, task: Callable[[Slot], T], *, in_new: bool = False) -> Future[T]:
        """Run `task` in a free slot of this kind, or `in_new` in one that is opened for it, while there may be more."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                with self._slot(kind, in_new) as slot:
                    result = task(slot)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._tasks.put(run)
        return future

    def close(self) -> None:
        """Kill running tasks and remove everything. Their errors are not reported."""
        for testbed in self._testbeds.values():
            testbed.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=_END_S)
        for testbed in self._testbeds.values():
            testbed.close()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    @contextmanager
    def _slot(self, kind: Kind, in_new: bool) -> Iterator[Slot]:
        with self._opening:
            idle = self._idle.setdefault(kind, [])
            slot = idle.pop() if idle and not (in_new and self._opened[kind] < self._slots) else None
            self._opened[kind] += slot is None
        slot = slot or self._testbed(kind.testbed).open_slot(kind.emulator or "")
        try:
            yield slot
        finally:
            idle.append(slot)

    def _testbed(self, name: str) -> Testbed:
        with self._opening:
            if name not in self._testbeds:
                self._testbeds[name] = self._open_testbed(name)
            return self._testbeds[name]
