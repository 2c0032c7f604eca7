"""Whose program is killed when, and started again: the part of a timeline that workers do when they are told.

Times count from the start of the processes; the steps of a program are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.edits import TimelineError, ranks_of
from wanbench.netprofiles import Profile

_NS = 1e9
_BUILT_IN = (
    "built-in trainers cannot form their group anew; take the worker off the network for a while with cut, or run a "
    "command (workload.command) whose program can be started again"
)


@dataclass(frozen=True)
class WorkerCommand:
    """What workers are told.

    Attributes:
        what: for people, such as "tokyo: killed". ranks: the workers. message: as `process.program.run` obeys it.
    """

    what: str
    ranks: tuple[int, ...]
    message: Mapping[str, Any]


class _Worker(Protocol):
    """The part of `harness.testbeds.base.WorkerHandle` that is needed here."""

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None: ...


class Programs:
    """The programs of workers, as a player reaches them.

    Args:
        workers: by rank.
        done_ns: when a worker did what it was told, by rank and the time at which that was due; filled by whoever
            listens to the workers. What is missing had nothing to do: the program had ended by itself.
    """

    def __init__(self, workers: Sequence[_Worker], done_ns: Mapping[tuple[int, int], int]) -> None:
        self._workers, self._done_ns = workers, done_ns

    def tell(self, command: WorkerCommand) -> None:
        """Send it. Raises: WorkerDied."""
        for rank in command.ranks:
            self._workers[rank].send(dict(command.message))

    def came_ns(self, command: WorkerCommand) -> int | None:
        """When the last worker had done it; None if none had anything to do."""
        due_ns = command.message["due_ns"]
        came = [self._done_ns.get((rank, due_ns)) for rank in command.ranks]
        return max((ns for ns in came if ns is not None), default=None)


def killed(change: Change, begin_ns: int, *, again: bool, ranks: tuple[int, ...]) -> WorkerCommand:
    """Of a kill that begins. `again`: it ends, too."""
    return WorkerCommand(change.text, ranks, {"cmd": "kill", "again": again, "due_ns": begin_ns})


def started_again(what: str, end_ns: int, ranks: tuple[int, ...]) -> WorkerCommand:
    """Of a kill that ends."""
    return WorkerCommand(what, ranks, {"cmd": "restart", "due_ns": end_ns})


def refused_to_trainers(where: str) -> str:
    """Why a workload that is not a command cannot have a kill. `where`: in which spec and entry."""
    return f"{where}.kill: {_BUILT_IN}"


def restarts(changes: Sequence[Change], network: EmulatedNetwork, profile: Profile) -> list[int]:
    """Of each worker, how often it is started again. Raises: TimelineError."""
    found = [0] * network.workers
    for _, end, _, rank in _deaths(changes, network, profile):
        found[rank] += end is not None
    return found


def check_kills(changes: Sequence[Change], network: EmulatedNetwork, profile: Profile) -> None:
    """Nobody is killed who is dead, and somebody always lives. Raises: TimelineError."""
    deaths = sorted(_deaths(changes, network, profile), key=lambda death: (death[0], death[3]))
    until: dict[int, tuple[int | None, int]] = {}
    for begin, end, index, rank in deaths:
        entry, at = f"timeline.{index}", f"{begin / _NS:g} s"
        if rank in until and (until[rank][0] is None or begin <= (until[rank][0] or 0)):
            by = f"timeline.{until[rank][1]}"
            raise TimelineError(
                f"{entry}: kill: worker {rank} is dead at {at} already, by {by}; expected one that lives"
            )
        until[rank] = end, index
        if sum(back is None or begin < back for back, _ in until.values()) == network.workers:
            raise TimelineError(f"{entry}: kill: nobody would be left at {at}; expected a worker that lives on")


def _deaths(
    changes: Sequence[Change], network: EmulatedNetwork, profile: Profile
) -> Iterator[tuple[int, int | None, int, int]]:
    """(begin, end, entry, worker); nanoseconds since the start of the processes."""
    for index, change in enumerate(changes):
        if change.kind == "kill":
            at = change.at_ns or 0
            for span in change.spans():
                for rank in ranks_of(change.where, network, profile):
                    yield at + span.begin_ns, None if span.end_ns is None else at + span.end_ns, index, rank
