"""Workers that are slow for a time: the changes of a timeline that workers make by their own clocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.edits import ranks_of
from wanbench.harness.timeline.schedule import Schedule
from wanbench.netprofiles import Profile

if TYPE_CHECKING:
    from wanbench.harness.testbeds.base import Event, TimelineRecord

_NS = 1e9
SlowTimes = Sequence[Sequence[int | None]]


class Stragglers:
    """The actual times at which workers became slow and normal again: always at the start of a step.

    Args:
        changes, network, profile: as `plan.repetition.slowdowns` takes them.
        slowed_ns: `Slowdowns.turned_ns` of each rank, for the entries that `slowdowns` returned; empty if it was lost.
    """

    def __init__(
        self, changes: Sequence[Change], network: EmulatedNetwork, profile: Profile, slowed_ns: Sequence[SlowTimes]
    ) -> None:
        self._changes, self._network, self._profile, self._slowed_ns = changes, network, profile, slowed_ns

    def events(self, record: TimelineRecord) -> list[Event]:
        """Return the events, each with the time of the last worker that it names; None if a worker never changed."""
        actual: dict[tuple[str, float], list[int | None]] = defaultdict(list)
        for what, due_ns, at_ns in self._transitions(record.steps):
            actual[what, due_ns / _NS] += at_ns
        begun_ns = record.begun_ns
        return [self._corrected(event, actual.get((event.what, event.asked_s)), begun_ns) for event in record.events]

    def _corrected(self, event: Event, actual_ns: Sequence[int | None] | None, begun_ns: int) -> Event:
        if actual_ns is None:
            return event
        known = [at_ns for at_ns in actual_ns if at_ns is not None]
        if len(known) < len(actual_ns):
            return replace(event, actual_s=None, at_ns=None, with_step=True)
        return replace(event, actual_s=(max(known) - begun_ns) / _NS, at_ns=max(known), with_step=True)

    def _transitions(self, steps: Mapping[int, int]) -> Iterator[tuple[str, int, list[int | None]]]:
        """Yield the text of each transition, when it was due, and when each worker made it."""
        remaining = [iter(times) for times in self._slowed_ns]
        for change in self._changes:
            if change.kind != "slow":
                continue
            spans = len(list(change.spans()))
            ranks = ranks_of(change.where, self._network, self._profile)
            times_of = [list(chain.from_iterable(islice(remaining[rank], spans))) for rank in ranks]
            alone = Schedule((change,), self._network, self._profile).resolved(steps)
            texts = [alone.what(due_ns)[0] for due_ns in alone.times[:2]]  # begins and ends alternate
            for index, due_ns in enumerate(alone.times):
                yield texts[index % 2], due_ns, [times[index] if index < len(times) else None for times in times_of]
