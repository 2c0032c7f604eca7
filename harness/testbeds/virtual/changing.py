"""A network that changes on the simulated clock, by the schedule that emulators follow too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wanbench.harness.testbeds.base import Event, Played, to_come
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.loop.job import Job

_NS = 1e9
_CHANGE = 6  # at equal times after all that the network carries
Emit = Callable[[dict[str, Any]], None]


class Changing:
    """Updates a `VirtualNetwork` when its changes are due.

    Attributes:
        events: what has happened, in order, then what was still to come.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._steps: dict[int, int] = {}
        self._played = -1
        self._warm = self._trained = 0
        self._origin: int | None = None
        self._happened: list[Event] = []

    def follow(self, simulation: Simulation, network: VirtualNetwork) -> None:
        """Of this simulation; before it runs."""
        self._simulation, self._network = simulation, network
        network.expect_changes()

    def began(self, workers: int) -> None:
        """One worker begins its first step; time counts from when the last of them does."""
        self._warm += 1
        if self._warm == workers:
            self._origin = self._simulation.now
            self._expect()

    def heard(self, job: Job, emit: Emit) -> Emit:
        """`emit`, which also hears of the steps that somebody waits for, and of the last one: when all have trained,
        the network is as it is without changes, and what a cut held back for good comes after all.
        """

        def also(row: dict[str, Any]) -> None:
            emit(row)
            ended = row["step"] + 1
            if ended == job.steps:
                self._trained += 1
                if self._trained == self._warm:
                    self._simulation.goes_past_never = True
                    self._network.update(self._schedule.network)
                    self._network.outages.expect(self._network.dead)
            elif ended in job.told_steps:
                self._steps[ended] = max(self._now, self._played + 1)
                self._expect()

        return also

    @property
    def events(self) -> list[Event]:
        """See the class."""
        return [*self._happened, *to_come(self._schedule.met(self._steps), self._played)]

    def played(self) -> Played:
        """What happened; at the end."""
        assert self._origin is not None, "all have begun"
        return Played(self.events, self._steps, self._origin)

    def cut_off(self) -> str:
        """What a cut holds apart at the end, for people; "" if nothing."""
        places = self._schedule.met(self._steps).cut_off(self._played)
        return f"cut off by the timeline: {', '.join(places)}" if places else ""

    @property
    def _now(self) -> int:
        assert self._origin is not None, "steps end after all have begun"
        return self._simulation.now - self._origin

    def _expect(self) -> None:
        """What is known to come has changed."""
        assert self._origin is not None, "all have begun"
        score, origin, sites = self._schedule.met(self._steps), self._origin, self._network.sites
        self._network.outages.expect(
            {
                src * sites + dst: [(origin + begin, None if end is None else origin + end) for begin, end in spans]
                for (src, dst), spans in score.outages().items()
            }
        )
        self._wait(score.after(self._played))

    def _wait(self, due: int | None) -> None:
        if due is not None and self._origin is not None:
            self._simulation.at(self._origin + due, (_CHANGE,), lambda: self._change(due))

    def _change(self, due: int) -> None:
        if due <= self._played or self._trained == self._warm:  # known twice, as steps were waited for; or too late
            return
        score = self._schedule.met(self._steps)
        moment = score.moment(due)
        self._network.update(moment.network)
        self._played = due
        now = self._simulation.now
        self._happened += [Event(what, due / _NS, self._now / _NS, now) for what in moment.what]
        self._wait(score.after(due))
