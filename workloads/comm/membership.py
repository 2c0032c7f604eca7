"""Which workers take part, while some are lost and return: the interface of a membership.

A membership is a series of epochs. In each one the same workers take part, and they have a `Comm` of their own. If a
worker is lost or returns, the epoch ends: all its operations in flight fail, on all ranks. The workers that are alive
call `regroup`, which returns the next epoch, the same on all of them. The lowest living worker decides who is in it. A
side of a divided network that may be the smaller one stops.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from wanbench.workloads.comm.base import Comm, CommError, Work


@dataclass(frozen=True)
class View:
    """One epoch, as one of its members sees it.

    Attributes:
        epoch: its number, from 0.
        members: its workers, in order: their ranks in the job. The place in this list is the rank in `comm`.
        steps: by member, how many steps its model has made; None if it has returned and has no model yet.
        comm: connects the members.
    """

    epoch: int
    members: Sequence[int]
    steps: Sequence[int | None]
    comm: Comm


class Membership(Protocol):
    """A worker's view of who takes part."""

    def changes(self) -> bool:
        """Whether the epoch has ended, so that `regroup` is due. Never blocks; asked at the beginning of a step."""

    def regroup(self, steps: int | None) -> View:
        """End the epoch, and return the next one, once its members agree.

        Args:
            steps: how many steps the model of this worker has made; None if it has no model.

        Raises:
            Minority: this worker can reach too few others.
        """

    def close(self) -> None:
        """Take part no longer, because training has ended here. The others do not wait for this worker."""


class Minority(CommError):
    """This side of a divided network may be the smaller one, and stops."""


def is_majority(members: int, unreachable: int) -> bool:
    """Whether these members may go on although others cannot be reached, and may be alive."""
    return members > unreachable


class Alone:
    """A `Comm` without peers, until its worker is a member of an epoch: an algorithm can start on it.

    Nothing can be sent, and nothing runs beside it: it is itself the operation of a body that never runs.
    """

    rank = 0
    world_size = 1

    def _refuse(self, *arguments: object, **options: object) -> NoReturn:
        raise CommError("this worker has no peers yet")

    all_reduce = all_gather = send = recv = first = wait = _refuse

    def now(self) -> int:
        """0: nothing happens here."""
        return 0

    def background(self, body: Callable[[Any], None]) -> Work:
        """Do not run `body`: there is nobody to serve."""
        return self

    def done(self) -> bool:
        """False."""
        return False

    def close(self) -> None:
        """Release nothing."""
