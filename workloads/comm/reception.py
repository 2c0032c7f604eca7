"""The port of a worker at which others ask for the next epoch: one thread answers it, and never polls."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from wanbench.workloads.comm.lines import Line, LineError

PORT = 29_599  # below those that the kernel gives to connections; every worker has an address of its own
HEARD = {"heard": True}


@dataclass(frozen=True)
class Join:
    """What a worker says when it asks for the next epoch.

    Attributes:
        group: what all workers of a job know, and no others.
        rank: the worker.
        epoch: the latest epoch that it knows; -1 if none.
        steps: how many steps its model has made; None if it has no model.
        port: where it listens for the connections of the next epoch.
    """

    group: str
    rank: int
    epoch: int
    steps: int | None
    port: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data; `joined` reverses it."""
        return asdict(self)


def joined(message: Mapping[str, Any], group: str, ranks: int) -> Join:
    """Return what a caller has said. Raises: LineError: it does not belong to this group, or makes no sense."""
    try:
        join = Join(**message)
    except TypeError:
        raise LineError("expected a worker that asks for the next epoch") from None
    numbers = (join.rank, join.epoch, join.port, 0 if join.steps is None else join.steps)
    if join.group != group or not all(type(number) is int for number in numbers) or not 0 <= join.rank < ranks:
        raise LineError("expected a worker of this group")
    return join


class Reception:
    """Takes calls, tells each caller that it was heard, and keeps the line for the answer.

    Attributes:
        changed: a descriptor that is readable when somebody has called or hung up. Whoever reads it clears it.
    """

    def __init__(self, address: str, group: str, ranks: int, silence_s: float) -> None:
        self._group, self._ranks, self._silence_s = group, ranks, silence_s
        self._lock = threading.Lock()
        self._callers: dict[int, tuple[Join, Line]] = {}
        self._listener = socket.create_server((address, PORT), backlog=1024)
        self._listener.setblocking(False)
        self.changed = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="reception", daemon=True)
        self._thread.start()

    def callers(self) -> dict[int, Join]:
        """Those that wait for an answer, by rank."""
        with self._lock:
            return {rank: join for rank, (join, _) in self._callers.items()}

    def answer(self, ranks: Iterable[int], message: dict[str, Any]) -> None:
        """Answer callers, and end their calls."""
        with self._lock:
            lines = [self._callers.pop(rank)[1] for rank in ranks if rank in self._callers]
        for line in lines:
            with suppress(OSError):  # it has hung up
                line.say(message)
            line.hang_up()

    def close(self) -> None:
        """End the thread, and close the port: later calls are refused. Calling it again does nothing."""
        if not self._thread.is_alive():
            return
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)
        os.close(self.changed)

    def _serve(self) -> None:
        lines: dict[socket.socket, Line] = {}
        with selectors.DefaultSelector() as selector, self._listener:
            selector.register(self._end, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while (ready := {key.fileobj for key, _ in selector.select()}) and self._end not in ready:
                for sock in ready:
                    if sock is self._listener:
                        with suppress(OSError):  # the caller has hung up
                            caller, _ = self._listener.accept()
                            lines[caller] = Line(caller, self._silence_s)
                            selector.register(caller, selectors.EVENT_READ)
                    elif isinstance(sock, socket.socket) and not self._listen_to(lines[sock]):
                        selector.unregister(sock)
                        lines.pop(sock).sock.close()
            for sock in lines:
                sock.close()

    def _listen_to(self, line: Line) -> bool:
        """Read what a caller says; return whether the line stays open."""
        try:
            for message in line.heard():
                join = joined(message, self._group, self._ranks)
                line.say(HEARD)
                self._change(join.rank, (join, line))
        except BlockingIOError:
            return True
        except OSError:
            with self._lock:
                gone = [rank for rank, (_, open_line) in self._callers.items() if open_line is line]
            for rank in gone:
                self._change(rank, None)
            return False
        return True

    def _change(self, rank: int, caller: tuple[Join, Line] | None) -> None:
        with self._lock:
            before = self._callers.pop(rank, None)
            if caller is not None:
                self._callers[rank] = caller
        if before is not None:
            before[1].hang_up()  # it has called again, or is gone
        os.eventfd_write(self.changed, 1)
