"""The networks that a timeline leads through, and their times. Pure.

Changes that hold at the same time are applied to the cell's original network one after another, in the order of the
spec. If two change the same value, the later entry wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.timeline.changes import Change, Span
from wanbench.harness.timeline.edits import Edit, TimelineError, check_plausible, edit_of, place_of, ranks_of
from wanbench.harness.timeline.kill import WorkerCommand, check_kills, kill_command, restart_command, restarts
from wanbench.netprofiles import Profile

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
class Moment:
    """A time at which something changes.

    Attributes:
        time_ns: time since all workers began.
        network: the network from then on.
        what: the changes that begin or end, as readable text.
        commands: commands to workers; each is in `what` too.
    """

    time_ns: int
    network: EmulatedNetwork
    what: tuple[str, ...]
    commands: tuple[WorkerCommand, ...] = ()


@dataclass(frozen=True)
class _Known:
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

    Slow workers are listed too, but they slow down by their own clocks (`rep.train.Stragglers`).

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
        self._profile = profile
        self._edits: dict[int, list[tuple[Span, Edit]]] = {}
        self._places: dict[int, Hashable] = {}
        self._latest: tuple[dict[int, int], ResolvedSchedule] | None = None
        for index, change in enumerate(changes):
            try:
                if change.kind in ("slow", "kill"):
                    self._places[index] = ranks_of(change.where, network, profile)
                    self._edits[index] = [(span, _unchanged) for span in change.spans()]
                    continue
                place = self._places[index] = place_of(change.where, network, profile)
                uniform = profile.name == "uniform"
                self._edits[index] = [
                    (span, _refusing(edit_of(change, span.point, place, uniform=uniform, scale=scale)))
                    for span in change.spans()
                ]
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
        for index, edits in self._edits.items():
            for _, edit in edits:
                try:
                    check_plausible(edit(self.network))
                except TimelineError as error:
                    raise TimelineError(f"timeline.{index}: {error}") from None
        check_kills(self.changes, self.network, self._profile)
        if sum(2 * len(edits) for edits in self._edits.values()) > MAX_MOMENTS:
            raise TimelineError(f"timeline: more than {MAX_MOMENTS} changes; expected fewer, e.g. a shorter trace")
        resolved = self.resolved({})
        for time in resolved.times if len(self._edits) > 1 and len(resolved.times) <= _MAX_TOGETHER else ():
            try:
                check_plausible(resolved.moment(time).network)
            except TimelineError as error:
                raise TimelineError(f"timeline: changes together at {time / _NS:g} s: {error}") from None

    def restarts(self) -> list[int]:
        """Return how often each worker's program is started again."""
        return restarts(self.changes, self.network, self._profile)

    def ranks(self, change: int) -> tuple[int, ...]:
        """Return the workers that a change names."""
        return ranks_of(self.changes[change].where, self.network, self._profile)

    def state(self, change: int) -> tuple[str, Hashable]:
        """The state that a change sets: it is back to normal when the last change with the same state has ended."""
        return self.changes[change].kind, self._places[change]

    def resolved(self, steps: Mapping[int, int]) -> ResolvedSchedule:
        """Return the schedule of all changes whose times are known.

        Args:
            steps: when each awaited step ended, if it has; nanoseconds since all workers began.
        """
        if self._latest is None or self._latest[0] != steps:  # called often, and slow for a long trace
            self._latest = dict(steps), ResolvedSchedule(self, self._known(steps))
        return self._latest[1]

    def _known(self, steps: Mapping[int, int]) -> dict[int, list[_Known]]:
        known: dict[int, list[_Known]] = {}
        for index, edits in self._edits.items():
            change = self.changes[index]
            at = change.at_ns if change.at_step is None else steps.get(change.at_step)
            if at is None:
                continue
            dark = {span.begin_ns for span in change.outages()}
            known[index] = [
                _Known(
                    at + span.begin_ns,
                    None if span.end_ns is None else at + span.end_ns,
                    index,
                    edit,
                    span.begin_ns in dark,
                )
                for span, edit in edits
            ]
        return known


class ResolvedSchedule:
    """The changes whose times are known. `Schedule.resolved` creates it.

    Args:
        known: the disjoint spans of each change, in order. Changes are in the order of the spec.
    """

    def __init__(self, schedule: Schedule, known: Mapping[int, Sequence[_Known]]) -> None:
        self._schedule, self._known = schedule, known
        spans = list(self._spans())
        ends = {span.end_ns for span in spans if span.end_ns is not None}
        self.times: tuple[int, ...] = tuple(sorted({span.begin_ns for span in spans} | ends))

    def after(self, time_ns: int) -> int | None:
        """The time of the next change, or None if there is none."""
        index = bisect_right(self.times, time_ns)
        return self.times[index] if index < len(self.times) else None

    def moment(self, time_ns: int) -> Moment:
        """Return the network from `time_ns` on, with the changes at that time. Raises: TimelineError."""
        network = self._schedule.network
        for span in self._holding(time_ns):
            network = span.edit(network)
        return Moment(time_ns, network, self.what(time_ns), tuple(self._commands(time_ns)))

    def what(self, time_ns: int) -> tuple[str, ...]:
        """The changes that begin or end at a time, as readable text. The network is not computed and can be invalid."""
        return tuple(self._texts.get(time_ns, ()))

    def _spans(self) -> Iterator[_Known]:
        return (span for spans in self._known.values() for span in spans)

    def _holding(self, time_ns: int) -> Iterator[_Known]:
        for spans in self._known.values():
            count = bisect_right(spans, time_ns, key=lambda span: span.begin_ns)
            if count and spans[count - 1].holds(time_ns):
                yield spans[count - 1]

    def _commands(self, time_ns: int) -> Iterator[WorkerCommand]:
        for index, spans in self._known.items():
            change = self._schedule.changes[index]
            for span in spans if change.kind == "kill" else ():
                if time_ns == span.begin_ns:
                    ranks = self._schedule.ranks(index)
                    yield kill_command(change, time_ns, again=span.end_ns is not None, ranks=ranks)
                elif time_ns == span.end_ns:
                    yield restart_command(_ending(change), time_ns, self._schedule.ranks(index))

    @cached_property
    def _texts(self) -> dict[int, dict[str, None]]:
        """The texts of each time.

        A trace begins and ends once, for all its lines. The end of a change is listed only if no other change still
        sets the same state, except that every killed program is started again.
        """
        begins, ends = self._bounds()
        texts: dict[int, dict[str, None]] = {}
        for index, spans in self._known.items():
            change, state = self._schedule.changes[index], self._schedule.state(index)
            text, ending, end_ns = change.text, _ending(change), None
            for span in spans:
                if span.begin_ns != end_ns:
                    texts.setdefault(span.begin_ns, {})[text] = None
                end_ns = span.end_ns
                if end_ns is None:
                    continue
                still_holding = bisect_right(begins[state], end_ns) - bisect_right(ends[state], end_ns)
                if not still_holding or change.kind == "kill":
                    texts.setdefault(end_ns, {})[ending] = None
        return texts

    def _bounds(self) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
        """Return the start and end times of all changes of each state, in order."""
        begins: dict[Hashable, list[int]] = {}
        ends: dict[Hashable, list[int]] = {}
        for index, spans in self._known.items():
            state = self._schedule.state(index)
            begins.setdefault(state, []).extend(span.begin_ns for span in spans)
            ends.setdefault(state, []).extend(span.end_ns for span in spans if span.end_ns is not None)
        for times in (*begins.values(), *ends.values()):
            times.sort()
        return begins, ends

    def cut_off(self, time_ns: int) -> list[str]:
        """The places where nothing gets through at a time, as readable text: "tokyo since 5 s"."""
        return [
            f"{self._schedule.changes[span.change].place} since {round(self._dark_since(span) / _NS, 2):g} s"
            for span in self._holding(time_ns)
            if span.dark
        ]

    def _dark_since(self, last: _Known) -> int:
        """The start of the outage that includes this span, which can cover several lines of a trace."""
        begin = last.begin_ns
        for span in reversed(self._known[last.change]):
            if span.dark and span.end_ns == begin:
                begin = span.begin_ns
        return begin

    def outages(self) -> dict[tuple[int, int], list[tuple[int, int | None]]]:
        """Return the disjoint outages (begin, end) of each directed path, in order."""
        found: dict[tuple[int, int], list[tuple[int, int | None]]] = {}
        lossy = ResolvedSchedule(
            self._schedule, {i: spans for i, spans in self._known.items() if _is_lossy(self._schedule.changes[i])}
        )
        open_ = {pair: 0 for pair, link in self._schedule.network.links.items() if link.loss >= 1}
        for time in lossy.times:
            for pair, link in lossy.moment(time).network.links.items():
                if link.loss >= 1:
                    open_.setdefault(pair, time)
                elif pair in open_:
                    found.setdefault(pair, []).append((open_.pop(pair), time))
        for pair, begin in open_.items():
            found.setdefault(pair, []).append((begin, None))
        return found


def _ending(change: Change) -> str:
    """The end of a change as readable text."""
    return f"{change.place}: {_ENDS.get(change.kind, f'{change.kind} as before')}"


def _unchanged(network: EmulatedNetwork) -> EmulatedNetwork:
    """Return the same network: a slow or killed worker does not change it."""
    return network


def _refusing(edit: Edit) -> Edit:
    """Return the same edit, which raises TimelineError for every arithmetic error."""

    def refusing(network: EmulatedNetwork) -> EmulatedNetwork:
        try:
            return edit(network)
        except (ValueError, OverflowError) as error:
            raise TimelineError(str(error)) from None

    return refusing


def _is_lossy(change: Change) -> bool:
    """Whether a change can begin or end an outage."""
    return change.kind in {"cut", "loss"} or (change.kind == "trace" and any("loss_pct" in p for p in change.value))
