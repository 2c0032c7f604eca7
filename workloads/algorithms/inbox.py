"""Messages of which a receiver does not know how many come: each has a note in front, and the last note is the end."""

from typing import Any, cast

from wanbench.workloads.comm.base import Comm, PatientWork, Vector, Work


def arrives(work: Work, wait_s: float | None) -> bool:
    """False if a message has not arrived within `wait_s` seconds; 0 only asks, and None lets its `wait` do the waiting.

    Raises:
        CommError: the peer is gone.
    """
    if wait_s is None or work.done():
        return True
    if not wait_s:
        return False
    return cast(PatientWork, work).wait_for(wait_s)  # `check` has refused gloo, whose work is not


def has_ended(work: Work) -> bool:
    """True if a send has ended; its work is then closed. Raises: CommError: the peer is gone."""
    if not work.done():
        return False
    work.wait()
    return True


def note(value: float) -> Any:
    """A vector of one number, float64, which has a value on every testbed."""
    import torch  # late: planning does not need it

    return torch.tensor([value], dtype=torch.float64)


class Inbox:
    """Messages from one peer: a note, then a vector, unless the note is the end, 0.

    Attributes:
        peer: the peer.
        note: that of the last message.
        ended: True once the peer's end has arrived. The peer can finish before this worker does and continue; its later
            messages stay queued.
    """

    def __init__(self, comm: Comm, peer: int, like: Vector) -> None:
        """`like`: a vector of the messages' size."""
        self._comm, self.peer, self.note, self._vector = comm, peer, note(0.0), like.clone()
        self.ended = False
        self._note_work: Work | None = None
        self._vector_work: Work | None = None

    def take(self, wait_s: float | None) -> Vector | None:
        """Return the next vector, or None if it does not arrive within `wait_s` (see `arrives`) or at the end.

        The vector is overwritten by the next call.

        Raises:
            CommError: the peer is gone.
        """
        if self.ended:
            return None
        if self._vector_work is None:
            if self._note_work is None:
                self._note_work = self._comm.recv(self.note, self.peer)
            if not arrives(self._note_work, wait_s):
                return None
            self._note_work.wait()
            self._note_work = None
            if not float(self.note):
                self.ended = True
                return None
            self._vector_work = self._comm.recv(self._vector, self.peer)
        if not arrives(self._vector_work, wait_s):
            return None
        self._vector_work.wait()
        self._vector_work = None
        return self._vector
