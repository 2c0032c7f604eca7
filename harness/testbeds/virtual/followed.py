"""Connections that are followed packet by packet. Those in equal state share a sender until something tells them apart.

The workers of a site often send the same at the same time: a round of `direct` between 4,096 workers in 32 regions has
127,000 messages between regions, but their connections are in fewer than 2,000 states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual.packets import Way
from wanbench.harness.testbeds.virtual.sender import Sender
from wanbench.harness.testbeds.virtual.streams import Stream

Ints = NDArray[np.int64]

_REMEMBERED = 8  # messages of a connection


@dataclass(frozen=True, slots=True)
class Message:
    """A message for a sender.

    Attributes:
        ready: when it begins. nbytes: of it. losses: number of its lost packets.
        tail_lost: whether the last packet is one of them. way: its path.
    """

    ready: float
    nbytes: float
    losses: int
    tail_lost: bool
    way: Way

    @property
    def draws(self) -> bool:
        """Whether random numbers decide what is lost: of it, or of what is sent again of it."""
        return self.losses > 0 or (self.way.loss > 0 and not self.way.paced)

    def by(self, sender: Sender) -> float:
        """Send it. Return when all of it has left the narrowest queue."""
        return sender.send(self.ready, self.nbytes, self.losses, self.tail_lost, self.way)


@dataclass(frozen=True, slots=True)
class _Step:
    """A message, and the sender before it."""

    before: Sender
    message: Message


@dataclass
class Followed:
    """A sender, and the connections that it stands for.

    Attributes:
        sender: after the last message.
        connections: their number.
        owner: the connection whose random numbers it draws; None as long as it has not drawn any.
    """

    sender: Sender
    connections: int
    owner: int | None = None
    _steps: list[_Step] = field(default_factory=list)  # the last messages, by the time when they are ready

    @property
    def last_ready_ns(self) -> float:
        """When its last message was ready."""
        return self._steps[-1].message.ready

    def part(self, connections: int) -> Followed:
        """Take some of its connections away: an independent copy for them."""
        self.connections -= connections
        return Followed(self.sender.copy(), connections, self.owner, list(self._steps))

    def draw_from(self, owner: int, random: Stream) -> None:
        """From now on it stands for one connection, which draws random numbers."""
        self.owner, self.sender.random = owner, random
        self._steps = [_Step(step.before.copy(), step.message) for step in self._steps]
        for step in self._steps:
            step.before.random = replace(random)

    def send(self, message: Message) -> int:
        """Send a message. One that was ready before the last ones goes before them. Return when it has left."""
        later = [step.message for step in self._steps if step.message.ready > message.ready]
        if later:
            self.sender = self._steps[-len(later)].before.copy()
            del self._steps[-len(later) :]
        lefts = []
        for each in (message, *later):
            self._steps.append(_Step(self.sender.copy(), each))
            lefts.append(each.by(self.sender))
        del self._steps[:-_REMEMBERED]
        return round(lefts[0])


@dataclass(frozen=True, slots=True)
class Group:
    """Equal messages of a round, on connections in equal state.

    Attributes:
        positions: of the messages in the round. followed: their sender.
    """

    positions: Ints
    followed: Followed

    @property
    def first(self) -> int:
        """The position of one of them."""
        return int(self.positions[0])


class FollowedConnections:
    """Which of some connections are followed, and by which sender.

    Args:
        count: number of connections. stream: returns a connection's own random numbers.
    """

    def __init__(self, count: int, stream: Callable[[int], Stream]) -> None:
        self._stream = stream
        self._random: dict[int, Stream] = {}  # of connections that have drawn some
        self._all: dict[int, Followed] = {}
        self._number = np.full(count, -1)  # of the sender in `_all`; -1 if not followed
        self._numbers = itertools.count()

    def among(self, index: Ints) -> NDArray[np.bool_]:
        """Which of these connections are followed."""
        followed: NDArray[np.bool_] = self._number[index] >= 0
        return followed

    def of(self, connection: int) -> Followed:
        """The sender of a connection that is followed."""
        return self._all[int(self._number[connection])]

    def groups(self, index: Ints, messages: Sequence[NDArray[Any]]) -> list[Group]:
        """The senders of a round's messages. Connections whose messages differ no longer share one.

        Args:
            index: the connection of each message. messages: what tells messages apart.
        """
        groups = []
        for positions in alike(np.flatnonzero(self.among(index)), [self._number[index], *messages]):
            followed = self.of(int(index[positions[0]]))
            if followed.connections > len(positions):
                followed = self.begin(index[positions], followed.part(len(positions)))
            groups.append(Group(positions, followed))
        return groups

    def begin(self, connections: Ints, followed: Followed) -> Followed:
        """Follow connections by a sender."""
        number = next(self._numbers)
        self._all[number], self._number[connections] = followed, number
        return followed

    def send(self, followed: Followed, connection: int, message: Message) -> int:
        """Send a message on all connections of a sender; `connection` is one of them. Return when it has left."""
        if message.draws and followed.owner is None:
            followed.draw_from(connection, self._random.get(connection) or self._stream(connection))
        return followed.send(message)

    def end(self, connections: Ints) -> Sender:
        """No longer follow connections that share a sender, which is returned."""
        number = int(self._number[connections[0]])
        followed = self._all[number]
        followed.connections -= len(connections)
        if not followed.connections:
            del self._all[number]
        if followed.owner is not None:
            self._random[followed.owner] = followed.sender.random
        self._number[connections] = -1
        return followed.sender


def alike(positions: Ints, columns: Sequence[NDArray[Any]]) -> list[Ints]:
    """Group positions at which all columns have equal values."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    keys = zip(*(column[positions].tolist() for column in columns), strict=True)
    for position, values in zip(positions.tolist(), keys, strict=True):
        groups.setdefault(values, []).append(position)
    return [np.array(group) for group in groups.values()]
