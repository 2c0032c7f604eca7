"""Which worker computes how slowly when: the part of a timeline that workers follow by their own clocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.edits import ranks_of
from wanbench.harness.timeline.schedule import Schedule
from wanbench.netprofiles import Profile

if TYPE_CHECKING:
    from wanbench.harness.testbeds.base import Event, Played

_NS = 1e9
Turns = Sequence[Sequence[int | None]]


def slowdowns(changes: Sequence[Change], network: EmulatedNetwork, profile: Profile) -> list[list[dict[str, Any]]]:
    """Of each rank, the fields of `workloads.compute.slowdown.Slowdown`. Raises: TimelineError."""
    found: list[list[dict[str, Any]]] = [[] for _ in range(network.workers)]
    for change in changes:
        if change.kind == "slow":
            for rank in ranks_of(change.where, network, profile):
                found[rank] += [
                    {
                        "factor": float(change.value),
                        "at_step": change.at_step,
                        "begin_ns": (change.at_ns or 0) + span.begin_ns,
                        "end_ns": None if span.end_ns is None else (change.at_ns or 0) + span.end_ns,
                    }
                    for span in change.spans()
                ]
    return found


class Stragglers:
    """When workers really got slow, and when no more: at the begin of a step of theirs.

    Args:
        changes, network, profile: as `slowdowns` takes them.
        slowed_ns: of each rank, `Slowdowns.turned_ns` of what `slowdowns` gave it.
    """

    def __init__(
        self, changes: Sequence[Change], network: EmulatedNetwork, profile: Profile, slowed_ns: Sequence[Turns]
    ) -> None:
        self._changes, self._network, self._profile, self._slowed_ns = changes, network, profile, slowed_ns

    def events(self, played: Played) -> list[Event]:
        """Its events, with the times at which the last of the workers that they name did so; None if one never did."""
        came: dict[tuple[str, float], list[int | None]] = defaultdict(list)
        for what, due_ns, at_ns in self._turns(played.steps):
            came[what, due_ns / _NS] += at_ns
        begun_ns = played.begun_ns
        return [self._corrected(event, came.get((event.what, event.asked_s)), begun_ns) for event in played.events]

    def _corrected(self, event: Event, came: Sequence[int | None] | None, begun_ns: int) -> Event:
        if came is None:
            return event
        known = [at_ns for at_ns in came if at_ns is not None]
        if len(known) < len(came):
            return replace(event, actual_s=None, at_ns=None, with_step=True)
        return replace(event, actual_s=(max(known) - begun_ns) / _NS, at_ns=max(known), with_step=True)

    def _turns(self, steps: Mapping[int, int]) -> Iterator[tuple[str, int, list[int | None]]]:
        """What is said of it, when it was due, and when it came to each worker."""
        left = [iter(turns) for turns in self._slowed_ns]
        for change in self._changes:
            if change.kind != "slow":
                continue
            spans = len(list(change.spans()))
            ranks = ranks_of(change.where, self._network, self._profile)
            each = [list(chain.from_iterable(islice(left[rank], spans))) for rank in ranks]
            alone = Schedule((change,), self._network, self._profile).met(steps)
            said = [alone.what(due_ns)[0] for due_ns in alone.times[:2]]  # it begins and ends by turns
            for turn, due_ns in enumerate(alone.times):
                yield said[turn % 2], due_ns, [turns[turn] for turns in each]
