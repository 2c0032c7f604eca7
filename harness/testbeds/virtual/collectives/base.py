"""The interface of a collective's model: a generator of rounds, vectorised over ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wanbench.harness.testbeds.virtual import Ints
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.tcp import Connections


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that leave when they are ready: message i of `route` at `ready[i]`.

    Attributes:
        complete: when the last byte of each message is ready; default is `ready`.
        spans: whether the answer also has the time when the first byte of each message reaches its site.
    """

    route: Route
    ready: Ints
    connections: Connections
    complete: Ints | None = None
    spans: bool = False


# Yields a round and receives the arrival times of its messages; or yields several generators, which then run side by
# side, and receives the list of their results. Returns when each rank has finished.
Rounds = Generator[Round | Sequence[Any], Any, Ints]


class Plan(ABC):
    """An all-reduce of one size between all workers of a network.

    Args:
        network: the network of the workers.
        nbytes: size of the vector on each of them, 1 or more.
    """

    operations_per_channel: ClassVar[int | None] = None  # at a time; None is any number
    paced: ClassVar[bool] = True  # senders keep to their share of the rate
    asks: ClassVar[bool] = False  # a message leaves once its receiver has asked for it

    def __init__(self, network: VirtualNetwork, nbytes: int) -> None:
        self.network, self.nbytes = network, nbytes
        self.ranks: Ints = np.arange(len(network.site_of))

    @classmethod
    def message_slot(cls, network: VirtualNetwork, src: int, dst: int) -> tuple[str, int, int]:
        """The connection of messages from a rank to another: (kind, number of connections, index)."""
        return f"message {src} {dst}", 1, 0

    @abstractmethod
    def rounds(self, ready: Ints, channel: int) -> Rounds:
        """The rounds of one operation.

        Args:
            ready: when each rank joins, shape (ranks,).
            channel: number of the channel; each has its own connections.
        """

    def connections(self, kind: str, channel: int, count: int) -> Connections:
        """The connections of a channel, which plans of all sizes share."""
        return self.network.connections(f"{type(self).__name__} {kind}", channel, count, paced=self.paced)
