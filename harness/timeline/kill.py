"""Workers that are killed and started again: the changes of a timeline that workers make on command.

For programs, times count from the start of their processes. The steps of a program are not known.
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


class _Worker(Protocol):
    """The part of `harness.testbeds.base.WorkerHandle` that `CommandedWorkers` needs."""

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None: ...


class CommandedWorkers:
    """Workers that obey commands, for a player.

    Args:
        workers: workers by rank.
        done_ns: when a worker had obeyed a command, by its rank and the command's due time. The reader of the
            workers' messages fills it. An entry is missing if its program or training had already ended.
    """

    def __init__(self, workers: Sequence[_Worker], done_ns: Mapping[tuple[int, int], int]) -> None:
        self._workers, self._done_ns = workers, done_ns

    def send(self, command: WorkerCommand) -> None:
        """Send a command to its workers. Raises: WorkerDied."""
        for rank in command.ranks:
            self._workers[rank].send(dict(command.message))

    def completed_ns(self, command: WorkerCommand) -> int | None:
        """When the last worker had obeyed a command, or None if all had already ended."""
        due_ns = command.message["due_ns"]
        times = [self._done_ns.get((rank, due_ns)) for rank in command.ranks]
        return max((ns for ns in times if ns is not None), default=None)


def kill_command(change: Change, begin_ns: int, *, again: bool, ranks: tuple[int, ...]) -> WorkerCommand:
    """Return the command for the start of a kill. With `again` the program is started again later."""
    return WorkerCommand(change.text, ranks, {"cmd": "kill", "again": again, "due_ns": begin_ns})


def restart_command(what: str, end_ns: int, ranks: tuple[int, ...]) -> WorkerCommand:
    """Return the command for the end of a kill."""
    return WorkerCommand(what, ranks, {"cmd": "restart", "due_ns": end_ns})


def restarts(changes: Sequence[Change], network: EmulatedNetwork, profile: Profile) -> list[int]:
    """Return how often each worker is started again. Raises: TimelineError."""
    counts = [0] * network.workers
    for _, end, _, rank in _deaths(changes, network, profile):
        counts[rank] += end is not None
    return counts


def check_kills(changes: Sequence[Change], network: EmulatedNetwork, profile: Profile) -> None:
    """Check that no dead worker is killed, and that some worker is always alive. Raises: TimelineError."""
    deaths = sorted(_deaths(changes, network, profile), key=lambda death: (death[0], death[3]))
    until: dict[int, tuple[int | None, int]] = {}
    for begin, end, index, rank in deaths:
        entry, at = f"timeline.{index}", f"{begin / _NS:g} s"
        if rank in until and (until[rank][0] is None or begin <= (until[rank][0] or 0)):
            by = f"timeline.{until[rank][1]}"
            raise TimelineError(
                f"{entry}: kill: worker {rank} is already dead at {at}, killed by {by}; expected a worker that is alive"
            )
        until[rank] = end, index
        if sum(back is None or begin < back for back, _ in until.values()) == network.workers:
            raise TimelineError(f"{entry}: kill: no worker would be alive at {at}; leave at least one alive")


def _deaths(
    changes: Sequence[Change], network: EmulatedNetwork, profile: Profile
) -> Iterator[tuple[int, int | None, int, int]]:
    """Yield (begin, end, entry, worker), in nanoseconds since the start of the processes."""
    for index, change in enumerate(changes):
        if change.kind == "kill":
            at = change.at_ns or 0
            for span in change.spans():
                for rank in ranks_of(change.where, network, profile):
                    yield at + span.begin_ns, None if span.end_ns is None else at + span.end_ns, index, rank
