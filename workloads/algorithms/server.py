"""A server that runs beside one worker, and its mail: a vector, if there is one, then a note that says what it is.

A vector travels before its note, so once the note is there, all has arrived: a slow sender holds up nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wanbench.workloads.algorithms.inbox import has_ended
from wanbench.workloads.comm.base import BackgroundComm, Vector, Work

VALUES = 3
"""Numbers in a note."""
_NOTES, _VECTORS, _ANSWERS = 1, 2, 3  # tags


@dataclass(frozen=True)
class Letter:
    """What has arrived at a desk.

    Attributes:
        source: rank of the sender.
        arrived_ns: when all of it had arrived.
        values: the numbers of the note.
        vector: the vector, or None.
        last: True if the sender writes no more before its `finish` ends.
    """

    source: int
    arrived_ns: int
    values: tuple[float, ...]
    vector: Vector | None
    last: bool


class Mail:
    """Sends letters and waits for answers; knows what has not left yet."""

    def __init__(self, comm: BackgroundComm) -> None:
        self.comm = comm
        self._sends: list[Work] = []

    def post(self, dst: int, vector: Vector | None, *values: float, last: bool = False) -> None:
        """Write a letter to the desk of a rank; returns at once."""
        numel = -1 if vector is None else vector.numel()
        self._send(dst, vector, _VECTORS)
        self._send(dst, _numbers(values, numel, last), _NOTES)

    def wait_for_answer(self, src: int, into: Vector) -> tuple[float, ...]:
        """Fill `into` with the next answer of a rank's desk; return its note's numbers. Raises: CommError."""
        note = _numbers(())
        for work in [self.comm.recv(part, src, _ANSWERS) for part in (into, note)]:
            work.wait()
        return tuple(float(value) for value in note[2:])

    def drain(self) -> None:
        """Wait until everything has been sent."""
        for work in self._sends:
            work.wait()
        self._sends = []

    def _send(self, dst: int, vector: Vector | None, tag: int) -> None:
        self._sends = [work for work in self._sends if not has_ended(work)]
        if vector is not None:
            self._sends.append(self.comm.send(vector, dst, tag))


class Desk(Mail):
    """Takes the letters of several ranks in the order of their arrival, and answers them.

    Args:
        comm: the view that a background has.
        sources: the ranks that write.
        like: a vector of the kind to receive.
    """

    def __init__(self, comm: BackgroundComm, sources: Iterable[int], like: Vector) -> None:
        super().__init__(comm)
        self._like = like
        self._notes: dict[int, Any] = {}
        self._receives: dict[int, Work] = {}
        for source in sources:
            self._expect(source)

    @property
    def sources(self) -> set[int]:
        """The ranks that still write."""
        return set(self._receives)

    def take(self, until_ns: int | None = None) -> Letter | None:
        """Return the next letter; None if there is none until `until_ns`.

        Raises:
            CommError: a peer is gone.
        """
        source = self.comm.first(self._receives, until_ns)
        if source is None:
            return None
        receive = self._receives.pop(source)
        receive.wait()
        arrived_ns = getattr(receive, "ended_ns", None) or self.comm.now()
        numel, last, *values = (float(value) for value in self._notes[source])
        vector: Vector | None = None
        if numel >= 0:
            vector = self._like.new_zeros(int(numel))
            self.comm.recv(vector, source, _VECTORS).wait()
        if not last:
            self._expect(source)
        return Letter(source, arrived_ns, tuple(values), vector, bool(last))

    def answer(self, dst: int, vector: Vector, *values: float) -> None:
        """Answer the worker of a rank; returns at once."""
        for part in (vector, _numbers(values)):
            self._send(dst, part, _ANSWERS)

    def _expect(self, source: int) -> None:
        self._notes[source] = _numbers(())
        self._receives[source] = self.comm.recv(self._notes[source], source, _NOTES)


def _numbers(values: tuple[float, ...], numel: int = -1, last: bool = False) -> Any:
    """A note: the size of the vector before it, whether it is the last, and the values; not a phantom anywhere.

    A size of -1 is no vector; a vector can be empty.
    """
    import torch  # late: planning does not need it

    padded = [*values, *[0.0] * (VALUES - len(values))]
    return torch.tensor([float(numel), float(last), *padded], dtype=torch.float64)
