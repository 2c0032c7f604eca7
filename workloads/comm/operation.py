"""A collective of `direct` in progress on one rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from wanbench.workloads.comm.blocks import LARGEST_BYTES
from wanbench.workloads.comm.mesh import ABORT, HOP, LEAVE, SCATTER, SHARE, WHOLE, Head
from wanbench.workloads.comm.tensors import MEAN, Reduction, described
from wanbench.workloads.comm.work import DirectWork


class Part(NamedTuple):
    """A chunk that has arrived: its bytes, whether it is the last one, and, with the first one, what its rank does."""

    body: bytearray
    last: bool
    about: str


# What has arrived for an operation and is not used yet: by kind and chunk, then by rank.
Held = dict[tuple[int, int], dict[int, Part]]
LARGEST_REASON_BYTES = 64 << 10
_LARGEST_BODY = {
    SCATTER: LARGEST_BYTES,
    WHOLE: LARGEST_BYTES,
    HOP: LARGEST_BYTES,
    ABORT: LARGEST_REASON_BYTES,
    LEAVE: 0,
}


def unfit(head: Head) -> str | None:
    """What is wrong with a frame that no memory should be given to, if anything."""
    if head.kind > HOP:
        return f"a frame of kind {head.kind}; expected 0 to {HOP}"
    limit = _LARGEST_BODY.get(head.kind, head.nbytes)
    return f"a frame of {head.nbytes} bytes, more than fits" if head.nbytes - head.about > limit else None


def reason_of(body: bytearray) -> str:
    """The reason of a peer that gives up; empty if it is no text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return ""


@dataclass
class Operation:
    """A collective in progress on this rank. It ends when no frame is `due` and none is `unsent`.

    Attributes:
        kind: the kind of the frames that the other ranks send for it.
        chunks: by rank, where its chunks belong.
        due: by rank, the number of its frames that have not been taken for use, without results.
        owed: by rank, the number of its results that have not arrived.
        unsent: by rank, the number of frames that have not left for it.
        unflushed: by chunk of this rank, the frames that still read from its memory.
        reduction: how a chunk of this rank is computed from those of all ranks.
        spreads: whether the result of a chunk of this rank is sent to all others.
        using: the number of chunks that are being used.
        gathered: rank and number of every result that has begun to arrive.
    """

    work: DirectWork
    kind: int
    chunks: Sequence[Sequence[torch.Tensor]]
    due: list[int]
    owed: list[int]
    unsent: list[int]
    unflushed: list[int] = field(default_factory=list)
    reduction: Reduction = MEAN
    spreads: bool = False
    using: int = 0
    gathered: set[tuple[int, int]] = field(default_factory=set)

    def reads(self, chunk: int) -> bool:
        """Whether frames still read from the memory of a chunk, so that its result must wait."""
        return chunk < len(self.unflushed) and self.unflushed[chunk] > 0

    def ended(self) -> bool:
        """Whether everything has arrived and left."""
        return not (self.using or any(self.unsent) or any(self.due) or any(self.owed))

    def take(self, ranks: Iterable[int]) -> None:
        """Note that a chunk of these ranks is used from now on. If one of them leaves meanwhile, it is not missing."""
        self.using += 1
        for rank in ranks:
            self.due[rank] -= 1

    def missing(self, held: Held) -> list[int]:
        """The ranks whose contributions have not all arrived; `held` has those that are not used yet."""
        return [rank for rank, due in enumerate(self.due) if due > _unused(held, rank)]

    def late(self, held: Held) -> list[int]:
        """The ranks that have sent nothing, rather than those that wait as well."""
        return self.missing(held)

    def owing(self) -> list[int]:
        """The ranks whose results have not all arrived, or, if there is none, that do not take what was sent."""
        frames = self.owed if any(self.owed) else self.unsent
        return [rank for rank, number in enumerate(frames) if number]

    def surplus(self, held: Held, rank: int) -> bool:
        """Whether a rank has sent more frames than this needs."""
        return _unused(held, rank) > self.due[rank]

    def needs(self, rank: int, held: Held) -> bool:
        """Whether it cannot end without a rank that sends nothing more."""
        return rank in self.missing(held) or bool(self.owed[rank])

    def about(self, chunks: Sequence[torch.Tensor]) -> str:
        """What this is, for a peer that sends or receives chunks like these."""
        by = "" if self.kind == SHARE else f" by {self.reduction.name}"
        return described(self.work.name + by, chunks)

    def disagreement(
        self, rank: int, names: Sequence[int], kind: int, sequence: int, chunk: int, arrived: Mapping[int, Part]
    ) -> str | None:
        """Say on what a rank disagrees whose frame does not fit; None if all fit.

        Args:
            rank: this rank. names: by rank, what messages call it.
            kind, sequence, chunk: of the frames. arrived: by rank, its frame.
        """
        for peer, part in sorted(arrived.items()):
            chunks = self.chunks[peer if kind in (SHARE, HOP) else rank]
            about = self.about(chunks or next(filter(None, self.chunks), ()))
            who, this = f"rank {names[peer]}", f"rank {names[rank]}"
            if not chunk and part.about != about:
                both = f"{who} began {part.about}; {this} began {about}"
                return f"ranks disagree on what to do in operation {sequence}: {both}"
            known = kind == self.kind and chunk < len(chunks)
            expected = chunks[chunk].numel() * chunks[chunk].element_size() if known else "nothing there"
            if (len(part.body), part.last) != (expected, chunk == len(chunks) - 1):
                sizes = f"{who} sent {len(part.body)} bytes; {this} expected {expected}"
                return f"ranks disagree on the size of {self.work.name} {sequence}: {sizes}"
        return None

    @torch.inference_mode()  # so that tensors made in this mode can be changed, too
    def receive(self, arrived: Mapping[int, Part]) -> None:
        """Fill what a transfer receives from these ranks."""
        for peer, part in arrived.items():
            if part.body:
                into = self.chunks[peer][0]
                into.copy_(torch.frombuffer(part.body, dtype=into.dtype))


def _unused(held: Held, rank: int) -> int:
    """The number of frames of a rank that have arrived and are not used yet."""
    return sum(rank in ranks for ranks in held.values())
