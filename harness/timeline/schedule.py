"""Which network there is when: the states that a timeline leads through. Pure.

Changes that hold at one time are made one after the other in the order of the spec, on the network that the cell has
without them; so the later one counts where two change the same value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.timeline.changes import Change, Span
from wanbench.harness.timeline.edits import Edit, TimelineError, check_plausible, edit_of, place_of, ranks_of
from wanbench.harness.timeline.kill import WorkerCommand, check_kills, killed, restarts, started_again
from wanbench.netprofiles import Profile

MOST_MOMENTS = 20_000
_NS, _MOST_TOGETHER = 1e9, 500
_ENDS = {
    "cut": "healed",
    "slow": "compute as before",
    "one_way": "one-way as before",
    "kill": "started again",
    "trace": "trace over",
}


@dataclass(frozen=True)
class Moment:
    """Something changes.

    Attributes:
        time_ns: since all workers began. what: begins or ends, for people.
        network: from now on. commands: what workers are told, each in `what` too.
    """

    time_ns: int
    network: EmulatedNetwork
    what: tuple[str, ...]
    commands: tuple[WorkerCommand, ...] = ()


@dataclass(frozen=True)
class _Known:
    """A span whose time has come to be known; nanoseconds since all workers began."""

    begin_ns: int
    end_ns: int | None
    change: int
    edit: Edit
    dark: bool  # nothing gets through where it holds

    def holds(self, time_ns: int) -> bool:
        return self.begin_ns <= time_ns and (self.end_ns is None or time_ns < self.end_ns)


class Schedule:
    """The network's side of a timeline, and what workers are told. That a worker gets slow is said here, and done by
    itself (`rep.stragglers`).

    Args:
        changes: of the cell. network: as it is without them. profile: whose sites they name.
        scale: of rates, the workload's `payload_scale`.

    Raises:
        TimelineError: a change names no place, or nothing that the network has.
    """

    def __init__(
        self, changes: Sequence[Change], network: EmulatedNetwork, profile: Profile, scale: float = 1.0
    ) -> None:
        self.network = network
        self.changes = tuple(changes)
        self._profile = profile
        self._edits: dict[int, list[tuple[Span, Edit]]] = {}
        self._places: dict[int, Hashable] = {}
        self._latest: tuple[dict[int, int], Score] | None = None
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
        """Numbers of steps after which something happens."""
        return tuple(sorted({change.at_step for change in self.changes if change.at_step is not None}))

    def check(self) -> None:
        """See that every state is one that a network can have, each change alone and, as far as their times are known
        and not too many, together. Raises: TimelineError.
        """
        for index, edits in self._edits.items():
            for _, edit in edits:
                try:
                    check_plausible(edit(self.network))
                except TimelineError as error:
                    raise TimelineError(f"timeline.{index}: {error}") from None
        check_kills(self.changes, self.network, self._profile)
        if sum(2 * len(edits) for edits in self._edits.values()) > MOST_MOMENTS:
            raise TimelineError(f"more than {MOST_MOMENTS} changes; expected fewer")
        score = self.met({})
        for time in score.times if len(self._edits) > 1 and len(score.times) <= _MOST_TOGETHER else ():
            try:
                check_plausible(score.moment(time).network)
            except TimelineError as error:
                raise TimelineError(f"timeline: changes together, {time / _NS:g} s: {error}") from None

    def restarts(self) -> list[int]:
        """Of each worker, how often its program is started again."""
        return restarts(self.changes, self.network, self._profile)

    def ranks(self, change: int) -> tuple[int, ...]:
        """The workers that a change names."""
        return ranks_of(self.changes[change].where, self.network, self._profile)

    def state(self, change: int) -> tuple[str, Hashable]:
        """What is as before only when the last change of this kind at this place has ended."""
        return self.changes[change].kind, self._places[change]

    def met(self, steps: Mapping[int, int]) -> Score:
        """All that is known to happen.

        Args:
            steps: when each awaited step ended, of those that have; nanoseconds since all workers began.
        """
        if self._latest is None or self._latest[0] != steps:  # asked for again and again, and long for a long trace
            self._latest = dict(steps), Score(self, self._known(steps))
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


class Score:
    """What is known to happen, once `Schedule.met` has put a time to it.

    Args:
        known: the spans of each change, in order and apart from each other; changes in the order of the spec.
    """

    def __init__(self, schedule: Schedule, known: Mapping[int, Sequence[_Known]]) -> None:
        self._schedule, self._known = schedule, known
        spans = list(self._spans())
        ends = {span.end_ns for span in spans if span.end_ns is not None}
        self.times: tuple[int, ...] = tuple(sorted({span.begin_ns for span in spans} | ends))

    def after(self, time_ns: int) -> int | None:
        """When something changes next; None if nothing does."""
        place = bisect_right(self.times, time_ns)
        return self.times[place] if place < len(self.times) else None

    def moment(self, time_ns: int) -> Moment:
        """The network from `time_ns` on. Raises: TimelineError."""
        network = self._schedule.network
        for span in self._holding(time_ns):
            network = span.edit(network)
        return Moment(time_ns, network, self.what(time_ns), tuple(self._commands(time_ns)))

    def what(self, time_ns: int) -> tuple[str, ...]:
        """What begins or ends then, for people; the network there would be is not asked for, and may be none."""
        return tuple(self._said.get(time_ns, ()))

    def _spans(self) -> Iterator[_Known]:
        return (span for spans in self._known.values() for span in spans)

    def _holding(self, time_ns: int) -> Iterator[_Known]:
        for spans in self._known.values():
            place = bisect_right(spans, time_ns, key=lambda span: span.begin_ns)
            if place and spans[place - 1].holds(time_ns):
                yield spans[place - 1]

    def _commands(self, time_ns: int) -> Iterator[WorkerCommand]:
        for index, spans in self._known.items():
            change = self._schedule.changes[index]
            for span in spans if change.kind == "kill" else ():
                if time_ns == span.begin_ns:
                    yield killed(change, time_ns, again=span.end_ns is not None, ranks=self._schedule.ranks(index))
                elif time_ns == span.end_ns:
                    yield started_again(_ending(change), time_ns, self._schedule.ranks(index))

    @cached_property
    def _said(self) -> dict[int, dict[str, None]]:
        """By time. A trace begins and ends once, whatever its lines; nothing is as before while its like still holds,
        but who is killed is started again.
        """
        begins, ends = self._bounds()
        said: dict[int, dict[str, None]] = {}
        for index, spans in self._known.items():
            change, state = self._schedule.changes[index], self._schedule.state(index)
            text, ending, before = change.text, _ending(change), None
            for span in spans:
                if span.begin_ns != before:
                    said.setdefault(span.begin_ns, {})[text] = None
                before = span.end_ns
                if before is None:
                    continue
                left = bisect_right(begins[state], before) - bisect_right(ends[state], before)
                if not left or change.kind == "kill":
                    said.setdefault(before, {})[ending] = None
        return said

    def _bounds(self) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
        """Of each state, when changes begin, and when they end, in order."""
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
        """Where nothing gets through at a time, for people: "tokyo since 5 s"."""
        return [
            f"{self._schedule.changes[span.change].place} since {round(self._dark_since(span) / _NS, 2):g} s"
            for span in self._holding(time_ns)
            if span.dark
        ]

    def _dark_since(self, last: _Known) -> int:
        """When the outage began that lasts through this span: lines of a trace may follow on each other."""
        begin = last.begin_ns
        for span in reversed(self._known[last.change]):
            if span.dark and span.end_ns == begin:
                begin = span.begin_ns
        return begin

    def outages(self) -> dict[tuple[int, int], list[tuple[int, int | None]]]:
        """When nothing gets through a directed path: of each, (begin, end) in order, apart from each other."""
        found: dict[tuple[int, int], list[tuple[int, int | None]]] = {}
        lossy = Score(
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
    """That it is over, for people."""
    return f"{change.place}: {_ENDS.get(change.kind, f'{change.kind} as before')}"


def _unchanged(network: EmulatedNetwork) -> EmulatedNetwork:
    """A worker that is slow or killed changes nothing but itself."""
    return network


def _refusing(edit: Edit) -> Edit:
    """The same, whose every arithmetic error is one of the timeline."""

    def made(network: EmulatedNetwork) -> EmulatedNetwork:
        try:
            return edit(network)
        except (ValueError, OverflowError) as error:
            raise TimelineError(str(error)) from None

    return made


def _is_lossy(change: Change) -> bool:
    """It may stop everything from getting through, or end that."""
    return change.kind in {"cut", "loss"} or (change.kind == "trace" and any("loss_pct" in p for p in change.value))
