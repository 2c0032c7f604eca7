"""Messages between two ranks, which keep their order for each tag, and the sends and receives that wait."""

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from weakref import WeakSet

import torch

from wanbench.workloads.comm.base import nbytes_of
from wanbench.workloads.comm.tensors import described
from wanbench.workloads.comm.work import DirectWork, first_ended


@dataclass(frozen=True)
class _Receive:
    """A receive that waits, for a message of one of the `sources` with this tag."""

    work: DirectWork
    tensor: torch.Tensor
    sources: Collection[int]
    tag: int
    about: str


class Mailbox:
    """The messages that one rank sends and receives.

    It numbers those that it sends by receiver and tag, and fills each receive with the next one of its source and tag.

    Args:
        names: by rank, what messages call it.
    """

    def __init__(self, names: Sequence[int]) -> None:
        self._names = names
        self._changed = threading.Condition()  # a receive has ended
        self._lock = threading.Lock()
        # By source and tag, then by number: the bytes, and what the sender says about them.
        self._bodies: dict[tuple[int, int], dict[int, tuple[bytearray, str]]] = defaultdict(dict)
        self._taken: Counter[tuple[int, int]] = Counter()
        self._waiting: list[_Receive] = []
        self._numbers: dict[tuple[int, int], Iterator[int]] = defaultdict(count)
        self._sending: dict[int, WeakSet[DirectWork]] = defaultdict(WeakSet)  # by receiver
        self._gone: dict[int, str] = {}

    def number(self, work: DirectWork, receiver: int, tag: int) -> int | None:
        """Return the number of the next message to send; None if the receiver is gone, and `work` has failed."""
        with self._lock:
            reason = self._gone.get(receiver)
            if reason is None:
                self._sending[receiver].add(work)
                return next(self._numbers[receiver, tag])
        work.complete(reason)
        return None

    def receive(self, work: DirectWork, tensor: torch.Tensor, sources: Collection[int], tag: int, about: str) -> None:
        """Fill `tensor` with the next message from any of the sources; `work` ends then, with its `source`.

        It fails if the sender said something else about the message than this rank.
        """
        with self._lock:
            self._waiting.append(_Receive(work, tensor, sources, tag, described(about, [tensor])))
        self._match()

    def first(self, receives: Mapping[int, DirectWork], seconds: float | None) -> int | None:
        """Wait until the first of several receives has ended, and return its key; None after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: first_ended(receives) is not None, seconds)
        return first_ended(receives)

    def arrived(self, source: int, tag: int, number: int, body: bytearray, about: str) -> None:
        """Take a message, the `number`-th of its source and tag. Numbers can arrive in any order."""
        with self._lock:
            self._bodies[source, tag][number] = body, about
        self._match()

    def lose(self, peer: int, reason: str) -> None:
        """Fail all messages to a peer that have not left, and the receives that only lost peers could have ended.

        Later ones fail too. The first reason is kept.
        """
        with self._lock:
            self._gone.setdefault(peer, reason)
            sending = list(self._sending.pop(peer, ()))
        for work in sending:  # those that have left have ended
            work.complete(reason)
        self._match()

    def _match(self) -> None:
        ended: list[tuple[_Receive, int | None, tuple[bytearray, str]]] = []
        with self._lock:
            for receive in list(self._waiting):
                keys = [(peer, receive.tag) for peer in receive.sources]
                key = next((key for key in keys if self._taken[key] in self._bodies[key]), None)
                if key is not None:
                    ended.append((receive, key[0], self._bodies[key].pop(self._taken[key])))
                    self._taken[key] += 1
                elif all(peer in self._gone for peer in receive.sources):
                    ended.append((receive, None, (bytearray(), "")))
                else:
                    continue
                self._waiting.remove(receive)
        for receive, source, message in ended:
            if source is None:
                receive.work.complete("; ".join(dict.fromkeys(self._gone[peer] for peer in receive.sources)))
            else:
                receive.work.source = source
                receive.work.complete(self._fill(receive, source, *message))
        if ended:
            with self._changed:
                self._changed.notify_all()

    @torch.inference_mode()
    def _fill(self, receive: _Receive, source: int, body: bytearray, about: str) -> str | None:
        """Fill a buffer with a message; return the reason if it does not fit."""
        tensor = receive.tensor
        nbytes = nbytes_of(tensor)
        if about != receive.about:
            return f"rank {self._names[source]} sent '{about}'; expected '{receive.about}'"
        if len(body) != nbytes:
            sent = f"rank {self._names[source]} sent a message of {len(body)} bytes"
            return f"{sent}; expected {nbytes}, the size of the buffer"
        if body:
            tensor.view(-1).copy_(torch.frombuffer(body, dtype=tensor.dtype))
        return None
