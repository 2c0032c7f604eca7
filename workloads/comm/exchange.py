"""An exchange: each worker sends a vector in blocks to each peer, once, and uses the blocks that arrive in time.

Once a worker has sent its last datagram, its exchange ends:

* at once, when all expected datagrams have arrived;
* when every peer has been heard, and nothing more has arrived for `silence`. Datagrams of a peer's later exchanges
  count too, because that peer has finished this one;
* after `deadline` at the latest.

So workers stay together, although no worker waits for another longer than `deadline`, and a lost datagram costs
`silence`. Datagrams that arrive before a worker begins its exchange are kept for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from wanbench.workloads.comm.base import Comm, Vector, Work


@dataclass(frozen=True)
class Terms:
    """The settings of an exchange, the same on all ranks.

    Attributes:
        block_bytes: size of a block, the unit of loss.
        deadline_ns: maximum duration of an exchange after the worker has sent its own datagrams.
        silence_ns: how long an exchange goes on after the last datagram, once all peers have been heard.
    """

    block_bytes: int
    deadline_ns: int
    silence_ns: int

    def end_ns(self, sent_ns: int, latest_ns: int | None) -> int:
        """When an incomplete exchange ends, if nothing more arrives.

        Args:
            sent_ns: when the worker sent its last datagram.
            latest_ns: when the latest datagram arrived, or the last peer was first heard; None until all were heard.
        """
        deadline = sent_ns + self.deadline_ns
        return deadline if latest_ns is None else min(deadline, max(sent_ns, latest_ns) + self.silence_ns)


class Exchange(Work, Protocol):
    """An exchange in progress. After `wait`:

    Attributes:
        arrived: by peer, the elements of its vector that have arrived, as runs.
        blocks: the number of blocks expected, and the number of blocks that did not arrive in time.
    """

    @property
    def arrived(self) -> Mapping[int, Sequence[slice]]:
        """See the class."""

    @property
    def blocks(self) -> tuple[int, int]:
        """See the class."""


@runtime_checkable
class LossyComm(Comm, Protocol):
    """A Comm that can also send datagrams."""

    def exchange(self, sends: Mapping[int, Vector], receives: Mapping[int, Vector], terms: Terms) -> Exchange:
        """Send `sends[peer]` to each peer and fill `receives[peer]` with the vector from that peer; returns at once.

        Lost blocks are not sent again. Empty vectors are not sent. All vectors belong to the operation until its `wait`
        returns; then the elements of `receives` listed in `arrived` are valid, and the others have any value.
        """
