"""The networks that a timeline leads through, and their times. Pure.

Changes that hold at the same time are applied to the cell's original network one after another, in the order of the
spec. If two change the same value, the later entry wins. Workers are killed and started again on command.

For programs, times count from the start of their processes. The steps of a program are not known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.spec.refusals import validated
from wanbench.harness.spec.tables import Table
from wanbench.harness.spec.timeline import ChangeTable
from wanbench.harness.timeline.changes import Change, Span, resolve
from wanbench.harness.timeline.edits import (
    OF_WORKERS,
    Edit,
    Scope,
    TimelineError,
    check_plausible,
    edit_of,
    ranks_of,
    scope_of,
)
from wanbench.netprofiles import FileError, Profile
from wanbench.netprofiles.user_file import parse_toml, read_text

MAX_MOMENTS = 20_000
_NS, _MAX_TOGETHER = 1e9, 500
_ENDS = {
    "cut": "healed",
    "slow": "compute as before",
    "one_way": "one-way as before",
    "kill": "started again",
    "trace": "trace over",
}


@dataclass(frozen=True)
class WorkerCommand:
    """A command to workers.

    Attributes:
        what: readable text, such as "tokyo: killed".
        ranks: the workers.
        message: the command, as `process.program.run` and `process.training.run_mortal` obey it.
    """

    what: str
    ranks: tuple[int, ...]
    message: Mapping[str, Any]


@dataclass(frozen=True)
class Moment:
    """A time at which something changes.

    Attributes:
        network: the network from then on.
        what: the changes that begin or end, as readable text.
        commands: commands to workers; each is in `what` too.
    """

    network: EmulatedNetwork
    what: tuple[str, ...]
    commands: tuple[WorkerCommand, ...] = ()


@dataclass(frozen=True)
class _TimedSpan:
    """A span whose times are known, in nanoseconds since all workers began."""

    begin_ns: int
    end_ns: int | None
    change: int
    edit: Edit
    dark: bool  # nothing gets through while it holds

    def holds(self, time_ns: int) -> bool:
        return self.begin_ns <= time_ns and (self.end_ns is None or time_ns < self.end_ns)


class Schedule:
    """The changes of the network, and the commands to workers.

    Slow workers are listed too, but they slow down by their own clocks (`rep.measure.straggler_events`).

    Args:
        changes: changes of the cell.
        network: the network without them.
        profile: the profile with the sites that they name.
        scale: factor on rates, the workload's `payload_scale`.

    Raises:
        TimelineError: a change names a place or value that the network does not have.
    """

    def __init__(
        self, changes: Sequence[Change], network: EmulatedNetwork, profile: Profile, scale: float = 1.0
    ) -> None:
        self.network = network
        self.changes = tuple(changes)
        self._edits: list[list[tuple[Span, Edit]]] = []
        self._scopes: list[Scope] = []
        self._latest: tuple[dict[int, int], ResolvedSchedule] | None = None
        for index, change in enumerate(changes):
            try:
                if change.kind in OF_WORKERS:
                    scope = Scope(ranks=ranks_of(change.where, network, profile))
                else:
                    scope = scope_of(change.where, network, profile)
                self._scopes.append(scope)
                self._edits.append(
                    [
                        (span, edit_of(change, span.point, scope, uniform=profile.name == "uniform", scale=scale))
                        for span in change.spans()
                    ]
                )
            except (ValueError, OverflowError) as error:
                raise TimelineError(f"timeline.{index}: {error}") from None

    @property
    def awaited_steps(self) -> tuple[int, ...]:
        """The numbers of steps after which something changes."""
        return tuple(sorted({change.at_step for change in self.changes if change.at_step is not None}))

    def check(self) -> None:
        """Check that every state of the network is plausible. Raises: TimelineError.

        Each change is checked alone, and all changes together at their known times, unless there are too many.
        """
        for index, edits in enumerate(self._edits):
            for _, edit in edits:
                try:
                    check_plausible(edit(self.network))
                except TimelineError as error:
                    raise TimelineError(f"timeline.{index}: {error}") from None
        self._check_kills()
        if sum(2 * len(edits) for edits in self._edits) > MAX_MOMENTS:
            raise TimelineError(f"timeline: more than {MAX_MOMENTS} changes; expected fewer, e.g. a shorter trace")
        resolved = self.resolved({})
        for time in resolved.times if len(self._edits) > 1 and len(resolved.times) <= _MAX_TOGETHER else ():
            try:
                check_plausible(resolved.network(time))
            except TimelineError as error:
                raise TimelineError(f"timeline: changes together at {time / _NS:g} s: {error}") from None

    def restarts(self) -> list[int]:
        """Return how often each worker's program is started again."""
        counts = [0] * self.network.workers
        for _, end, _, rank in self._deaths():
            counts[rank] += end is not None
        return counts

    def _check_kills(self) -> None:
        """Check that no dead worker is killed, and that some worker is always alive. Raises: TimelineError."""
        until: dict[int, tuple[int | None, int]] = {}
        for begin, end, index, rank in sorted(self._deaths(), key=lambda death: (death[0], death[3])):
            entry, at = f"timeline.{index}", f"{begin / _NS:g} s"
            if rank in until and (until[rank][0] is None or begin <= (until[rank][0] or 0)):
                by = f"timeline.{until[rank][1]}"
                raise TimelineError(
                    f"{entry}: kill: worker {rank} is already dead at {at}, killed by {by}; expected a worker that is "
                    "alive"
                )
            until[rank] = end, index
            if sum(back is None or begin < back for back, _ in until.values()) == self.network.workers:
                raise TimelineError(f"{entry}: kill: no worker would be alive at {at}; leave at least one alive")

    def _deaths(self) -> Iterator[tuple[int, int | None, int, int]]:
        """Yield (begin, end, entry, worker), in nanoseconds since the start of the processes."""
        for index, change in enumerate(self.changes):
            at = change.at_ns or 0
            for span in change.spans() if change.kind == "kill" else ():
                for rank in self.ranks(index):
                    yield at + span.begin_ns, None if span.end_ns is None else at + span.end_ns, index, rank

    def ranks(self, change: int) -> tuple[int, ...]:
        """Return the workers that a change names."""
        return self._scopes[change].ranks

    def state(self, change: int) -> tuple[str, Scope]:
        """The state that a change sets: it is back to normal when the last change with the same state has ended."""
        return self.changes[change].kind, self._scopes[change]

    def resolved(self, steps: Mapping[int, int]) -> ResolvedSchedule:
        """Return the schedule of all changes whose times are known.

        Args:
            steps: when each awaited step ended, if it has; nanoseconds since all workers began.
        """
        if self._latest is None or self._latest[0] != steps:  # called often, and slow for a long trace
            self._latest = dict(steps), ResolvedSchedule(self, self._timed(steps))
        return self._latest[1]

    def alone(self, change: int, steps: Mapping[int, int]) -> ResolvedSchedule:
        """Return the schedule of one change only, if its times are known. Arguments as in `resolved`."""
        return ResolvedSchedule(self, {index: spans for index, spans in self._timed(steps).items() if index == change})

    def _timed(self, steps: Mapping[int, int]) -> dict[int, list[_TimedSpan]]:
        timed: dict[int, list[_TimedSpan]] = {}
        for index, (change, edits) in enumerate(zip(self.changes, self._edits, strict=True)):
            at = change.at_ns if change.at_step is None else steps.get(change.at_step)
            if at is None:
                continue
            dark = {span.begin_ns for span in change.outages()}
            timed[index] = [
                _TimedSpan(
                    at + span.begin_ns,
                    None if span.end_ns is None else at + span.end_ns,
                    index,
                    edit,
                    span.begin_ns in dark,
                )
                for span, edit in edits
            ]
        return timed


class ResolvedSchedule:
    """The changes whose times are known. `Schedule.resolved` creates it.

    Args:
        spans: the disjoint spans of each change, in order. Changes are in the order of the spec.
    """

    def __init__(self, schedule: Schedule, spans: Mapping[int, Sequence[_TimedSpan]]) -> None:
        self._schedule, self._spans_of = schedule, spans
        bounds = (time_ns for of in spans.values() for span in of for time_ns in (span.begin_ns, span.end_ns))
        self.times = tuple(sorted({time_ns for time_ns in bounds if time_ns is not None}))

    def after(self, time_ns: int) -> int | None:
        """The time of the next change, or None if there is none."""
        index = bisect_right(self.times, time_ns)
        return self.times[index] if index < len(self.times) else None

    def moment(self, time_ns: int) -> Moment:
        """Return the network from `time_ns` on, with the changes at that time. Raises: TimelineError."""
        return Moment(self.network(time_ns), self.what(time_ns), tuple(self._commands(time_ns)))

    def network(self, time_ns: int) -> EmulatedNetwork:
        """Return the network from `time_ns` on. Raises: TimelineError."""
        network = self._schedule.network
        for span in self._holding(time_ns):
            network = span.edit(network)
        return network

    def what(self, time_ns: int) -> tuple[str, ...]:
        """The changes that begin or end at a time, as readable text. The network is not computed and can be invalid."""
        return tuple(self._texts.get(time_ns, ()))

    def _holding(self, time_ns: int) -> Iterator[_TimedSpan]:
        for spans in self._spans_of.values():
            count = bisect_right(spans, time_ns, key=lambda span: span.begin_ns)
            if count and spans[count - 1].holds(time_ns):
                yield spans[count - 1]

    def _commands(self, time_ns: int) -> Iterator[WorkerCommand]:
        for index, spans in self._spans_of.items():
            change = self._schedule.changes[index]
            for span in spans if change.kind == "kill" else ():
                if time_ns == span.begin_ns:
                    kill = {"cmd": "kill", "again": span.end_ns is not None, "due_ns": time_ns}
                    yield WorkerCommand(change.text, self._schedule.ranks(index), kill)
                elif time_ns == span.end_ns:
                    restart = {"cmd": "restart", "due_ns": time_ns}
                    yield WorkerCommand(_ending(change), self._schedule.ranks(index), restart)

    @cached_property
    def _texts(self) -> dict[int, dict[str, None]]:
        """The texts of each time.

        A trace begins and ends once, for all its lines. The end of a change is listed only if no other change still
        sets the same state, except that every killed program is started again.
        """
        texts: dict[int, dict[str, None]] = {}
        for index, spans in self._spans_of.items():
            change, state = self._schedule.changes[index], self._schedule.state(index)
            text, ending, end_ns = change.text, _ending(change), None
            for span in spans:
                if span.begin_ns != end_ns:
                    texts.setdefault(span.begin_ns, {})[text] = None
                end_ns = span.end_ns
                if end_ns is None:
                    continue
                others = (self._schedule.state(span.change) for span in self._holding(end_ns))
                if change.kind == "kill" or state not in others:
                    texts.setdefault(end_ns, {})[ending] = None
        return texts

    def cut_off(self, time_ns: int) -> str:
        """Describe where nothing gets through at a time: "cut off by the timeline: tokyo since 5 s"; "" if nowhere."""
        outages = [
            f"{self._schedule.changes[span.change].where_text} since {round(self._dark_since(span) / _NS, 2):g} s"
            for span in self._holding(time_ns)
            if span.dark
        ]
        return f"cut off by the timeline: {', '.join(outages)}" if outages else ""

    def _dark_since(self, last: _TimedSpan) -> int:
        """The start of the outage that includes this span, which can cover several lines of a trace."""
        begin = last.begin_ns
        for span in reversed(self._spans_of[last.change]):
            if span.dark and span.end_ns == begin:
                begin = span.begin_ns
        return begin

    def outages(self) -> dict[tuple[int, int], list[tuple[int, int | None]]]:
        """Return the disjoint outages (begin, end) of each directed path, in order."""
        outages: dict[tuple[int, int], list[tuple[int, int | None]]] = {}
        lossy = ResolvedSchedule(
            self._schedule, {i: spans for i, spans in self._spans_of.items() if _is_lossy(self._schedule.changes[i])}
        )
        open_ = {pair: 0 for pair, link in self._schedule.network.links.items() if link.loss >= 1}
        for time in lossy.times:
            for pair, link in lossy.network(time).links.items():
                if link.loss >= 1:
                    open_.setdefault(pair, time)
                elif pair in open_:
                    outages.setdefault(pair, []).append((open_.pop(pair), time))
        for pair, begin in open_.items():
            outages.setdefault(pair, []).append((begin, None))
        return outages


def _ending(change: Change) -> str:
    """The end of a change as readable text."""
    return f"{change.where_text}: {_ENDS.get(change.kind, f'{change.kind} as before')}"


def _is_lossy(change: Change) -> bool:
    """Whether a change can begin or end an outage."""
    return change.kind in {"cut", "loss"} or (change.kind == "trace" and any("loss_pct" in p for p in change.value))


class _File(Table):
    timeline: list[ChangeTable] = Field(min_length=1)


def read_timeline(path: Path) -> list[dict[str, Any]]:
    """Read the changes that a TOML file lists, as part of a cell. Raises: SpecError."""
    with as_spec_error(str(path), FileError):
        data = parse_toml(read_text(path, "TOML"))
    return resolve(validated(_File, data, str(path)).timeline, str(path))


def schedule_for_program(
    changes: tuple[Change, ...], network: EmulatedNetwork, profile: Profile, where: str
) -> Schedule:
    """Return the schedule for a program, whose steps and compute time are unknown. Raises: SpecError."""
    for index, change in enumerate(changes):
        if change.at_step is not None:
            raise SpecError(
                f'{where}: timeline.{index}.at: the steps of a program are not known; give a time, e.g. "5s"'
            )
        if change.kind == "slow":
            raise SpecError(f"{where}: timeline.{index}.slow: a program's compute time cannot be changed; leave it out")
    with as_spec_error(where, TimelineError):
        schedule = Schedule(changes, network, profile)
        schedule.check()
    return schedule
