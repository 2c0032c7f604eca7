"""Apply a timeline: update the emulator and command workers when changes are due, and record the actual times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from wanbench.harness.emulators.emulator import Emulator, EmulatorError
from wanbench.harness.testbeds.base import Event, TimelineRecord, WorkerDied, pending_events
from wanbench.harness.timeline.edits import TimelineError
from wanbench.harness.timeline.schedule import Schedule, WorkerCommand

if TYPE_CHECKING:
    from wanbench.harness.testbeds.slot import Worker

_NS = 1e9


class Player:
    """Follows a schedule in its own thread, from `begin` to `stop`.

    Args:
        workers: those that the timeline can kill, by rank.
        done_ns: when a worker had obeyed a command, by its rank and the command's due time. The reader of the
            workers' messages fills it. An entry is missing if its program or training had already ended.
        say: prints one line for the user when something changes.
    """

    def __init__(
        self,
        schedule: Schedule,
        emulator: Emulator,
        workers: Sequence[Worker],
        done_ns: Mapping[tuple[int, int], int],
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._schedule, self._emulator, self._say = schedule, emulator, say
        self._workers, self._done_ns = workers, done_ns
        self._sent: list[tuple[int, int, WorkerCommand]] = []  # index of its event, due time, command
        self._condition = threading.Condition()
        self._steps: dict[int, int] = {}
        self._early: dict[int, int] = {}
        self._origin: int | None = None
        self._stopped = False
        self._done = -1  # time since the origin up to which all changes have been made
        self.events: list[Event] = []
        self.error: EmulatorError | None = None
        self._thread = threading.Thread(target=self._play, name="timeline", daemon=True)

    def begin(self, origin_ns: int) -> None:
        """Start the timeline at the time at which all workers begin their first step."""
        with self._condition:
            self._origin = origin_ns
            self._steps = {step: max(0, at_ns - origin_ns) for step, at_ns in self._early.items()}
        self._thread.start()

    def step_ended(self, step: int, at_ns: int) -> None:
        """Note that rank 0 has ended this many steps. Raises: EmulatorError, if a change could not be made."""
        with self._condition:
            if self._origin is None:  # reported before the last worker reported that it is warm
                self._early[step] = at_ns
                return
            # The report arrives a little late. Changes that have been made by now are not made again.
            self._steps[step] = max(at_ns - self._begun, self._done + 1)
            self._condition.notify()
        self.check()

    def check(self) -> None:
        """Check that all changes could be made. Raises: EmulatorError, if not."""
        if self.error is not None:
            raise self.error

    def stop(self) -> list[Event]:
        """End the thread, and keep the changes made. Return all events, with those still pending."""
        with self._condition:
            if self._stopped:
                return self.events
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._note_obeyed()
        self.events += pending_events(self._schedule.resolved(self._steps), self._done)
        return self.events

    def cut_off(self) -> str:
        """Describe what is cut off now; "" if nothing is."""
        if self._origin is None or self._stopped:
            return ""
        with self._condition:
            return self._schedule.resolved(self._steps).cut_off(time.monotonic_ns() - self._origin)

    def record(self) -> TimelineRecord:
        """Return what happened, and when the awaited steps of rank 0 ended. Call it after `stop`."""
        self._note_obeyed()  # also those that were on their way then
        return TimelineRecord(self.events, self._steps, self._begun)

    def _note_obeyed(self) -> None:
        for index, due_ns, command in self._sent:
            times = [self._done_ns[rank, due_ns] for rank in command.ranks if (rank, due_ns) in self._done_ns]
            self.events[index] = self._event(command.what, due_ns, max(times, default=None))

    def _play(self) -> None:
        network = self._schedule.network
        try:
            while (due := self._next()) is not None:
                with self._condition:
                    moment = self._schedule.resolved(self._steps).moment(due)
                if moment.network != network:
                    self._emulator.update(moment.network)
                    network = moment.network
                actual, commands = time.monotonic_ns(), {command.what: command for command in moment.commands}
                for what in moment.what:
                    if what in commands:
                        self._send(due, commands[what])
                    self.events.append(self._event(what, due, None if what in commands else actual))
                    with suppress(OSError):  # the reader of the output has gone
                        self._say(f"{due / _NS:g} s: {what}")
        except EmulatorError as error:
            self.error = error
        except TimelineError as error:  # changes that are valid alone, and not together
            self.error = EmulatorError(str(error))

    def _send(self, due: int, command: WorkerCommand) -> None:
        """Send a command. `stop` fills in its time, which is known when the workers have answered."""
        self._sent.append((len(self.events), due, command))
        with suppress(WorkerDied):  # the thread that reads from the worker reports it
            for rank in command.ranks:
                self._workers[rank].send(dict(command.message))

    def _event(self, what: str, due: int, actual_ns: int | None) -> Event:
        return Event(what, due / _NS, None if actual_ns is None else (actual_ns - self._begun) / _NS, actual_ns)

    def _next(self) -> int | None:
        """Sleep until a change is due and return its time, or None once stopped."""
        with self._condition:
            while not self._stopped:
                due = self._schedule.resolved(self._steps).after(self._done)
                left_s = None if due is None else (self._begun + due - time.monotonic_ns()) / _NS
                if due is not None and left_s is not None and left_s <= 0:
                    self._done = due
                    return due
                self._condition.wait(left_s)
        return None

    @property
    def _begun(self) -> int:
        assert self._origin is not None, "call begin first"
        return self._origin
