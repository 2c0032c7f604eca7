"""The calls of a worker to all others at the same time: who is alive, who is dead, and who cannot be reached."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self

from wanbench.workloads.comm.lines import Line
from wanbench.workloads.comm.reception import HEARD, PORT

_DEAD = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)


class State(Enum):
    """What is known of a called worker.

    CALLED: nothing yet. ALIVE: it has heard. DEAD: its machine says that nobody is at its port, or it has hung up.
    UNREACHABLE: no answer.
    """

    CALLED, ALIVE, DEAD, UNREACHABLE = range(4)


@dataclass(eq=False)
class _Call:
    line: Line
    state: State = State.CALLED
    connected: bool = False
    answer: dict[str, Any] = field(default_factory=dict)


class Calls:
    """One call to each of the others, with the same words. Closing it hangs up.

    Args:
        hosts: the others, by rank.
        words: what to say.
        deadline_s: who has not heard until then is unreachable.
    """

    def __init__(self, hosts: Mapping[int, str], words: dict[str, Any], deadline_s: float) -> None:
        self._words, self._deadline = words, time.monotonic() + deadline_s
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, _Call] = {}
        for rank, host in hosts.items():
            call = self._calls[rank] = _Call(Line(socket.socket(), deadline_s))
            number = call.line.sock.connect_ex((host, PORT))
            if number in (0, errno.EINPROGRESS):
                self._selector.register(call.line.sock, selectors.EVENT_WRITE, call)
            else:
                self._end(call, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for call in self._calls.values():
            call.line.sock.close()
        self._selector.close()

    def __getitem__(self, rank: int) -> State:
        return self._calls[rank].state

    def having(self, *states: State) -> list[int]:
        """The workers of which this is known, in order."""
        return [rank for rank in sorted(self._calls) if self[rank] in states]

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        """Those that have answered, with what they said, in order."""
        return [(rank, call.answer) for rank, call in sorted(self._calls.items()) if call.answer]

    def wait(self, also: int, limit: float) -> None:
        """Wait until something has happened, the eventfd `also` is readable, which clears it, or the time `limit`."""
        until = min(limit, self._deadline) if self.having(State.CALLED) else limit
        self._selector.register(also, selectors.EVENT_READ)
        ready = self._selector.select(max(0.0, until - time.monotonic()))
        self._selector.unregister(also)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(also)
        for call in (key.data for key, _ in ready if key.data is not None):
            try:
                self._proceed(call)
            except BlockingIOError:
                continue
            except OSError as error:
                self._end(call, error.errno)
        if time.monotonic() >= self._deadline:
            for rank in self.having(State.CALLED):
                self._end(self._calls[rank], errno.ETIMEDOUT)

    def _proceed(self, call: _Call) -> None:
        if not call.connected:
            number = call.line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, "")
            call.connected = True
            self._selector.modify(call.line.sock, selectors.EVENT_READ, call)
            call.line.say(self._words)
            return
        for message in call.line.heard():
            if message == HEARD:
                call.state = State.ALIVE
            else:
                call.answer = message

    def _end(self, call: _Call, number: int | None) -> None:
        """Note that a call has ended: with an error, or, with None, because the other side has hung up."""
        call.state = State.DEAD if number is None or number in _DEAD else State.UNREACHABLE
        with contextlib.suppress(KeyError, ValueError):  # it was refused at once
            self._selector.unregister(call.line.sock)
        call.line.sock.close()
