"""A network that changes on the simulated clock, by the same schedule as an emulated one."""

from __future__ import annotations

from collections.abc import Callable

from wanbench.harness.testbeds.base import Event, TimelineRecord, pending_events
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.timeline.schedule import Schedule, WorkerCommand
from wanbench.workloads.loop.job import Job, StepRow

_NS = 1e9
_CHANGE = 6  # at equal times changes come after all messages
Emit = Callable[[StepRow], None]


class ChangingNetwork:
    """Updates a `VirtualNetwork` when its changes are due."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._steps: dict[int, int] = {}
        self._done = -1
        self._warm = self._trained = 0
        self._origin: int  # when all have begun
        self._past: list[Event] = []
        self._present = schedule.network

    def follow(self, simulation: Simulation, network: VirtualNetwork, obey: Callable[[WorkerCommand], None]) -> None:
        """Set the simulation, its network, and what kills and starts workers, before it runs."""
        self._simulation, self._network, self._obey = simulation, network, obey

    def worker_began(self, workers: int) -> None:
        """Note that one worker begins its first step. The timeline starts when the last of them does."""
        self._warm += 1
        if self._warm == workers:
            self._origin = self._simulation.now
            self._reschedule()

    def worker_lost(self) -> None:
        """Note that one worker will not end its training."""
        self._warm -= 1
        self._note_end()

    def watch_steps(self, job: Job, emit: Emit) -> Emit:
        """Return an `emit` that also notes the ends of awaited steps, and of the last one.

        When all workers have trained, the network returns to its original values, and messages that an endless cut
        holds back arrive after all.
        """

        def emit_and_note(row: StepRow) -> None:
            emit(row)
            ended = row.step + 1
            if ended == job.steps:
                self._trained += 1
                self._note_end()
            elif ended in job.told_steps:
                self._steps[ended] = max(self._now, self._done + 1)
                self._reschedule()

        return emit_and_note

    def _note_end(self) -> None:
        if self._trained == self._warm:
            self._simulation.goes_past_never = True
            self._network.update(self._schedule.network)
            self._network.outages.expect(self._network.dead)

    @property
    def events(self) -> list[Event]:
        """The past changes in order, then the pending ones."""
        return [*self._past, *pending_events(self._schedule.resolved(self._steps), self._done)]

    def record(self) -> TimelineRecord:
        """Return what happened. Call it at the end."""
        return TimelineRecord(self.events, self._steps, self._origin)

    def cut_off(self) -> str:
        """Describe what is cut off at the end; "" if nothing is."""
        outages = self._schedule.resolved(self._steps).cut_off(self._done)
        return f"cut off by the timeline: {', '.join(outages)}" if outages else ""

    @property
    def _now(self) -> int:
        return self._simulation.now - self._origin

    def _reschedule(self) -> None:
        """Schedule the known changes again, because more of them have become known."""
        resolved, origin, sites = self._schedule.resolved(self._steps), self._origin, self._network.sites
        self._network.outages.expect(
            {
                src * sites + dst: [(origin + begin, None if end is None else origin + end) for begin, end in spans]
                for (src, dst), spans in resolved.outages().items()
            }
        )
        self._wait(resolved.after(self._done))

    def _wait(self, due: int | None) -> None:
        if due is not None:
            self._simulation.at(self._origin + due, (_CHANGE,), lambda: self._change(due))

    def _change(self, due: int) -> None:
        if due <= self._done or self._trained == self._warm:  # scheduled twice after an awaited step, or too late
            return
        resolved = self._schedule.resolved(self._steps)
        moment = resolved.moment(due)
        if moment.network != self._present:
            self._network.update(moment.network)
            self._present = moment.network
        for command in moment.commands:
            self._obey(command)
        self._done = due
        now = self._simulation.now
        self._past += [Event(what, due / _NS, self._now / _NS, now) for what in moment.what]
        self._wait(resolved.after(due))
