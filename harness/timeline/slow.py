"""Which worker computes how slowly when: the part of a timeline that workers follow by their own clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.emulators.plan import Network
from harness.timeline.changes import Change
from harness.timeline.edits import ranks_of
from netprofiles import Profile


def slowdowns(changes: Sequence[Change], network: Network, profile: Profile) -> list[list[dict[str, Any]]]:
    """Of each rank, the fields of `workloads.slowdown.Slowdown`. Raises: TimelineError."""
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
