"""Messages between two ranks, which keep their order for each tag, and the receives that wait for them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import torch

from wanbench.workloads.comm.work import DirectWork


@dataclass(frozen=True)
class _Receive:
    """A receive that waits, for a message of one of the `sources` with this tag."""

    work: DirectWork
    tensor: torch.Tensor
    sources: Collection[int]
    tag: int


class Mailbox:
    """The messages that one rank receives. It fills each receive with the next message of its source and tag."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: dict[tuple[int, int], dict[int, bytearray]] = {}  # by source and tag, then by number
        self._taken: Counter[tuple[int, int]] = Counter()
        self._waiting: list[_Receive] = []
        self._gone: dict[int, str] = {}

    def receive(self, work: DirectWork, tensor: torch.Tensor, sources: Collection[int], tag: int) -> None:
        """Fill `tensor` with the next message from any of the sources; `work` ends then, with its `source`."""
        with self._lock:
            self._waiting.append(_Receive(work, tensor, sources, tag))
        self._match()

    def arrived(self, source: int, tag: int, number: int, body: bytearray) -> None:
        """Take a message, the `number`-th of its source and tag. Numbers can arrive in any order."""
        with self._lock:
            self._bodies.setdefault((source, tag), {})[number] = body
        self._match()

    def lose(self, source: int, reason: str) -> None:
        """Fail the receives that only this source, or only lost ones, could have ended."""
        with self._lock:
            self._gone[source] = reason
        self._match()

    def _match(self) -> None:
        ended: list[tuple[_Receive, int | None, bytearray]] = []
        with self._lock:
            for receive in list(self._waiting):
                source = next((peer for peer in receive.sources if self._has(peer, receive.tag)), None)
                if source is not None:
                    key = source, receive.tag
                    number = self._taken[key]
                    self._taken[key] += 1
                    ended.append((receive, source, self._bodies[key].pop(number)))
                elif all(peer in self._gone for peer in receive.sources):
                    ended.append((receive, None, bytearray()))
                else:
                    continue
                self._waiting.remove(receive)
        for receive, source, body in ended:
            if source is None:
                receive.work.complete("; ".join(dict.fromkeys(self._gone[peer] for peer in receive.sources)))
            else:
                _fill(receive.work, receive.tensor, source, body)

    def _has(self, source: int, tag: int) -> bool:
        return self._taken[source, tag] in self._bodies.get((source, tag), ())


@torch.inference_mode()
def _fill(work: DirectWork, tensor: torch.Tensor, source: int, body: bytearray) -> None:
    work.source = source
    nbytes = tensor.numel() * tensor.element_size()
    if len(body) != nbytes:
        work.complete(f"the message has {len(body)} bytes; expected {nbytes}, the size of the buffer")
        return
    if body:
        tensor.view(-1).copy_(torch.frombuffer(body, dtype=tensor.dtype))
    work.complete()
