"""An exchange: everyone sends everyone a vector in blocks, once, and takes what has come in time.

When an exchange ends for a worker whose last datagram has left:

* at once, when all that it expects is there;
* when it has heard of every peer, and nothing more has come for `silence`. Datagrams of a peer's later exchanges are
  heard as well: that peer is through with this one;
* after `deadline` at the latest.

So workers stay together although none of them is ever waited for longer than `deadline`, and what is lost costs
`silence`. What comes before a worker has begun its exchange is kept for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from wanbench.workloads.comm.base import Comm, Vector, Work


@dataclass(frozen=True)
class Terms:
    """What all ranks agree on.

    Attributes:
        block_bytes: size of a block, the unit of loss.
        deadline_ns: how long an exchange lasts at most after the own datagrams have left.
        silence_ns: how long it lasts after the last datagram once all peers have been heard.
    """

    block_bytes: int
    deadline_ns: int
    silence_ns: int

    def end_ns(self, left_ns: int, latest_ns: int | None) -> int:
        """When an incomplete exchange ends, if nothing more comes.

        Args:
            left_ns: when the last own datagram left.
            latest_ns: when the latest datagram came, or the last peer was first heard; None if one has not been.
        """
        deadline = left_ns + self.deadline_ns
        return deadline if latest_ns is None else min(deadline, max(left_ns, latest_ns) + self.silence_ns)


class Exchange(Work, Protocol):
    """An exchange under way. After `wait`:

    Attributes:
        arrived: by peer, the elements of its vector that are there, as runs.
        blocks: how many were expected, and how many of them did not come in time.
    """

    @property
    def arrived(self) -> Mapping[int, Sequence[slice]]:
        """See the class."""

    @property
    def blocks(self) -> tuple[int, int]:
        """See the class."""


@runtime_checkable
class LossyComm(Comm, Protocol):
    """A Comm that has datagrams."""

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> Exchange:
        """Send `sends[peer]` to each peer and fill `receives[peer]` with what it sent here; returns at once.

        Nothing is sent again, and a vector of no elements is not sent. All vectors belong to the operation until its
        `wait` returns; then `receives` holds values where `arrived` says so, and anything elsewhere.
        """
