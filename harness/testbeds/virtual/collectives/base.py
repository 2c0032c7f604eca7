"""What a description of a collective is: a generator of rounds, vectorised over ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.queues import Ints
from wanbench.harness.testbeds.virtual.tcp import Connections


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that leave when they are ready: `ready[i]` belongs to message i of `route`."""

    route: Route
    ready: Ints
    connections: Connections


# Yields a round and is sent the arrival times of its messages; or yields several generators, which then run side by
# side, and is sent the list of what they return. Returns when each rank is through.
Rounds = Generator[Round | Sequence[Any], Any, Ints]


class Plan(ABC):
    """An all-reduce of one size between all workers of a network.

    Args:
        network: whose workers take part.
        nbytes: of the vector on each of them, 1 or more.
    """

    operations_per_channel: ClassVar[int | None] = None  # that run at a time; None is any number

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        self.network, self.nbytes = network, nbytes
        self.ranks: Ints = np.arange(len(network.site_of))

    @abstractmethod
    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation.

        Args:
            ready: when each rank joins, shape (ranks,).
            channel: number of the channel, each with connections of its own.
        """

    def connections(self, kind: str, channel: int, count: int) -> Connections:
        """The connections of a channel; plans of all sizes share them."""
        return self.network.connections(f"{type(self).__name__} {kind}", channel, count)
