"""Gives an emulator each network of a timeline when it is due, tells workers what they shall do, and notes when it
really came.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from wanbench.harness.emulators.base import EmulatorError
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.testbeds.base import Event, Played, WorkerDied, to_come
from wanbench.harness.timeline.edits import TimelineError
from wanbench.harness.timeline.kill import Programs, WorkerCommand
from wanbench.harness.timeline.schedule import Schedule

_NS = 1e9


class Changeable(Protocol):
    """The part of an emulator that a player needs."""

    def update(self, network: EmulatedNetwork) -> None:
        """New values for the places of a network, while traffic flows."""


class Player:
    """Follows a schedule in a thread of its own, from `begin` to `stop`.

    Args:
        now: the clock that workers use too, in nanoseconds.
        programs: of the workers, where a timeline may kill them. say: one line for the user, when something changes.
    """

    def __init__(
        self,
        schedule: Schedule,
        emulator: Changeable,
        now: Callable[[], int] = time.monotonic_ns,
        programs: Programs | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._schedule, self._emulator, self._now, self._programs = schedule, emulator, now, programs
        self._say = say
        self._sent: list[tuple[int, int, WorkerCommand]] = []  # place among the events, and when it was due
        self._condition = threading.Condition()
        self._steps: dict[int, int] = {}
        self._early: dict[int, int] = {}
        self._origin: int | None = None
        self._stopped = False
        self._played = -1  # the last time, since the origin, up to which everything has been done
        self.events: list[Event] = []
        self.error: EmulatorError | None = None
        self._thread = threading.Thread(target=self._play, name="timeline", daemon=True)

    def begin(self, origin_ns: int) -> None:
        """All workers begin their first step at this time."""
        with self._condition:
            self._origin = origin_ns
            self._steps = {step: max(0, at_ns - origin_ns) for step, at_ns in self._early.items()}
        self._thread.start()

    def ended_step(self, step: int, at_ns: int) -> None:
        """Rank 0 has ended this many steps. Raises: what went wrong meanwhile."""
        with self._condition:
            if self._origin is None:  # told before the last worker told that it is warm
                self._early[step] = at_ns
                return
            # It is told a little later than it was: what has been done meanwhile is not done again.
            self._steps[step] = max(at_ns - self._begun, self._played + 1)
            self._condition.notify()
        self.check()

    def check(self) -> None:
        """Raises: EmulatorError, if a change could not be made."""
        if self.error is not None:
            raise self.error

    def stop(self) -> list[Event]:
        """End the thread; what is done stays. Returns all events, those that were still to come too."""
        with self._condition:
            if self._stopped:
                return self.events
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()
        for place, asked_ns, command in self._sent:
            assert self._programs is not None, "somebody was told"
            self.events[place] = self._event(command.what, asked_ns, self._programs.came_ns(command))
        self.events += to_come(self._schedule.met(self._steps), self._played)
        return self.events

    def cut_off(self) -> str:
        """What a cut holds apart now, for people; "" if nothing."""
        if self._origin is None or self._stopped:
            return ""
        with self._condition:
            places = self._schedule.met(self._steps).cut_off(self._now() - self._origin)
        return f"cut off by the timeline: {', '.join(places)}" if places else ""

    def played(self) -> Played:
        """What happened, and when rank 0's steps ended that were waited for; after `stop`."""
        return Played(self.events, self._steps, self._begun)

    def _play(self) -> None:
        network = self._schedule.network
        try:
            while (due := self._next()) is not None:
                with self._condition:
                    moment = self._schedule.met(self._steps).moment(due)
                if moment.network != network:
                    self._emulator.update(moment.network)
                    network = moment.network
                actual, commands = self._now(), {each.what: each for each in moment.commands}
                for what in moment.what:
                    if what in commands:
                        self._tell(due, commands[what])
                    self.events.append(self._event(what, due, None if what in commands else actual))
                    with suppress(OSError):  # nobody reads it any more
                        self._say(f"{due / _NS:g} s: {what}")
        except EmulatorError as error:
            self.error = error
        except TimelineError as error:  # changes that go one by one, and not together
            self.error = EmulatorError(str(error))

    def _tell(self, due: int, command: WorkerCommand) -> None:
        """What comes of it is known when the workers have answered: `stop` fills it in."""
        assert self._programs is not None, "refused where no program runs"
        self._sent.append((len(self.events), due, command))
        with suppress(WorkerDied):  # whoever listens to it says so
            self._programs.tell(command)

    def _event(self, what: str, due: int, actual_ns: int | None) -> Event:
        return Event(what, due / _NS, None if actual_ns is None else (actual_ns - self._begun) / _NS, actual_ns)

    def _next(self) -> int | None:
        """Sleep until something is due; None once stopped."""
        with self._condition:
            while not self._stopped:
                due = self._schedule.met(self._steps).after(self._played)
                left_s = None if due is None else (self._begun + due - self._now()) / _NS
                if due is not None and left_s is not None and left_s <= 0:
                    self._played = due
                    return due
                self._condition.wait(left_s)
        return None

    @property
    def _begun(self) -> int:
        assert self._origin is not None, "begin comes first"
        return self._origin
