"""A membership over TCP: workers that are alive find each other again after others were lost, or have returned.

Every worker has a listener at a port that all know (`Reception`). One that wants the next epoch calls all others at the
same time, and says how far it is (`Calls`)::

    refused      the process is dead, and its machine is not
    no answer    it cannot be reached, and may be alive
    heard        it is alive; it has to ask for the next epoch too

The lowest living worker decides. It waits until all that are alive have asked, and answers them with the members, and
with a token by which their connections know each other. Whatever else happens meanwhile, such as the death of one more
worker or the return of another, begins this again.
"""

import errno
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.membership import Minority, View, is_majority
from wanbench.workloads.process.control import Channel, ControlError

PORT = 29_599  # below those that the kernel gives to connections; every worker has an address of its own
HEARD = {"heard": True}
_MOST_BYTES = 1 << 20  # of a message; the addresses of a thousand workers take a twentieth


def line(sock: socket.socket, silence_s: float) -> Channel:
    """Return a channel that never blocks.

    Args:
        sock: connected, or about to be.
        silence_s: see `mesh.notice_silence`.
    """
    sock.setblocking(False)
    mesh.notice_silence(sock, silence_s)
    return Channel(sock, _MOST_BYTES)


def arrived(channel: Channel) -> Iterator[dict[str, Any]]:
    """Yield the messages that have arrived. Raises: OSError: the peer has hung up, or said what is no message."""
    try:
        with suppress(BlockingIOError):
            for message in channel.messages():
                if message is None:
                    raise ConnectionError("hung up")
                yield message
    except ControlError as error:
        raise ConnectionError(str(error)) from None


def hang_up(channel: Channel) -> None:
    """End both directions, behind what was said. The reader of the socket closes it."""
    with suppress(OSError):
        channel.sock.shutdown(socket.SHUT_RDWR)


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


def joined(message: Mapping[str, Any], group: str, ranks: int) -> Join:
    """Return what a caller has said. Raises: OSError: it does not belong to this group, or makes no sense."""
    try:
        join = Join(**message)
    except TypeError:
        raise ConnectionError("expected a worker that asks for the next epoch") from None
    numbers = (join.rank, join.epoch, join.port, 0 if join.steps is None else join.steps)
    if join.group != group or not all(type(number) is int for number in numbers) or not 0 <= join.rank < ranks:
        raise ConnectionError("expected a worker of this group")
    return join


class Reception:
    """Takes calls, tells each caller that it was heard, and keeps the line for the answer.

    Attributes:
        changed: a descriptor that is readable when somebody has called or hung up. Whoever reads it clears it.
    """

    def __init__(self, address: str, group: str, ranks: int, silence_s: float) -> None:
        self._group, self._ranks, self._silence_s = group, ranks, silence_s
        self._lock = threading.Lock()
        self._callers: dict[int, tuple[Join, Channel]] = {}
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
            channels = [self._callers.pop(rank)[1] for rank in ranks if rank in self._callers]
        for channel in channels:
            with suppress(OSError):  # it has hung up
                channel.send(message)
            hang_up(channel)

    def close(self) -> None:
        """End the thread, and close the port: later calls are refused. Calling it again does nothing."""
        if not self._thread.is_alive():
            return
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)
        os.close(self.changed)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener:
            selector.register(self._end, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while (ready := {key.fileobj for key, _ in selector.select()}) and self._end not in ready:
                for end in ready:
                    if end is self._listener:
                        with suppress(OSError):  # the caller has hung up
                            caller, _ = self._listener.accept()
                            selector.register(line(caller, self._silence_s), selectors.EVENT_READ)
                    elif isinstance(end, Channel) and not self._listen_to(end):
                        selector.unregister(end)
                        end.close()
            for channel in (key.fileobj for key in selector.get_map().values()):
                if isinstance(channel, Channel):
                    channel.close()

    def _listen_to(self, channel: Channel) -> bool:
        """Read what a caller says; return whether the line stays open."""
        try:
            for message in arrived(channel):
                join = joined(message, self._group, self._ranks)
                channel.send(HEARD)
                self._change(join.rank, (join, channel))
            return True
        except OSError:
            with self._lock:
                gone = [rank for rank, (_, line) in self._callers.items() if line is channel]
            for rank in gone:
                self._change(rank, None)
            return False

    def _change(self, rank: int, caller: tuple[Join, Channel] | None) -> None:
        with self._lock:
            before = self._callers.pop(rank, None)
            if caller is not None:
                self._callers[rank] = caller
        if before is not None:
            hang_up(before[1])  # it has called again, or is gone
        os.eventfd_write(self.changed, 1)


_DEAD = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)


class State(Enum):
    """What is known of a called worker.

    CALLED: nothing yet. ALIVE: it has heard. DEAD: its machine says that nobody is at its port, or it has hung up.
    UNREACHABLE: no answer.
    """

    CALLED, ALIVE, DEAD, UNREACHABLE = range(4)


@dataclass(eq=False)
class _Call:
    channel: Channel
    state: State = State.CALLED
    connected: bool = False
    answer: dict[str, Any] = field(default_factory=dict)


class Calls:
    """One call to each of the others, with the same words.

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
            call = self._calls[rank] = _Call(line(socket.socket(), deadline_s))
            number = call.channel.sock.connect_ex((host, PORT))
            if number in (0, errno.EINPROGRESS):
                self._selector.register(call.channel, selectors.EVENT_WRITE, call)
            else:
                self._end(call, number)

    def close(self) -> None:
        """Hang up."""
        for call in self._calls.values():
            call.channel.close()
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
        with suppress(BlockingIOError):
            os.eventfd_read(also)
        for call in (key.data for key, _ in ready if key.data is not None):
            try:
                self._proceed(call)
            except OSError as error:
                self._end(call, error.errno)
        if time.monotonic() >= self._deadline:
            for rank in self.having(State.CALLED):
                self._end(self._calls[rank], errno.ETIMEDOUT)

    def _proceed(self, call: _Call) -> None:
        if not call.connected:
            number = call.channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, "")
            call.connected = True
            self._selector.modify(call.channel, selectors.EVENT_READ, call)
            call.channel.send(self._words)
            return
        for message in arrived(call.channel):
            if message == HEARD:
                call.state = State.ALIVE
            else:
                call.answer = message

    def _end(self, call: _Call, number: int | None) -> None:
        """Note that a call has ended: with an error, or, with None, because the other side has hung up."""
        call.state = State.DEAD if number is None or number in _DEAD else State.UNREACHABLE
        with suppress(KeyError, ValueError):  # it was refused at once
            self._selector.unregister(call.channel)
        call.channel.close()


@dataclass(frozen=True)
class Decision:
    """What the lowest living worker has decided.

    Attributes:
        epoch: its number.
        members: in order.
        steps: by member, as in `Join`.
        ports: by member, where it listens.
        token: in hexadecimal; see `mesh.connect`.
    """

    epoch: int
    members: Sequence[int]
    steps: Sequence[int | None]
    ports: Sequence[int]
    token: str


class _AgainError(Exception):
    """Something has happened that begins the agreement again."""


class Regrouping:
    """The `Membership` of a worker. `close` ends what it holds: connections, the listener and its thread.

    Args:
        rank: this worker.
        hosts: by rank, the addresses of all workers.
        group: what all workers of the job know, and no others.
        first: connects all workers.
        connect: connects members: with the listener of this worker, their ranks, where they listen, and their token.
        deadline_s: who does not answer for so long cannot be reached.
        timeout_s: limit for an agreement. A worker that is alive may ask late, because it ends its step first.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        group: str,
        first: Callable[[], DirectComm],
        connect: Callable[[socket.socket, Sequence[int], Sequence[tuple[str, int]], bytes], DirectComm],
        *,
        deadline_s: float,
        timeout_s: float,
    ) -> None:
        self._rank, self._hosts, self._group = rank, hosts, group
        self._first, self._connect = first, connect
        self._deadline_s, self._timeout_s = deadline_s, timeout_s
        self._epoch, self._members = -1, [rank]
        self._comm: DirectComm | None = None
        self._reception = Reception(hosts[rank], group, len(hosts), deadline_s)

    def first(self) -> View:
        """Return the epoch in which all workers start. Raises: CommError."""
        self._comm = self._first()
        self._epoch, self._members = 0, list(range(len(self._hosts)))
        return View(0, self._members, [0] * len(self._members), self._comm)

    def changes(self) -> bool:
        """Whether a member was lost, or another worker asks for the next epoch."""
        # A member can be slow to hang up after the agreement of this epoch.
        joins = self._reception.callers().values()
        asked = any(join.rank not in self._members or join.epoch >= self._epoch for join in joins)
        return asked or self._comm is None or self._comm.failed is not None

    def regroup(self, steps: int | None) -> View:
        """Return the next epoch, as `Membership` says.

        Raises:
            Minority: this side may be the smaller one, no worker has a model, or there was no agreement in time.
        """
        if self._comm is not None:
            self._comm.give_up("a member asks for the next epoch")
            self._comm.close()
            self._comm = None
        limit = time.monotonic() + self._timeout_s
        while time.monotonic() < limit:
            with mesh.listen(self._hosts[self._rank]) as listener:
                try:
                    return self._enter(self._agree(steps, listener.getsockname()[1], limit), listener)
                except Minority:
                    raise
                except (_AgainError, CommError):  # also if a member was lost before all were connected
                    continue
        raise Minority(f"rank {self._rank} has not agreed with others on the next epoch within {self._timeout_s:g} s")

    def close(self) -> None:
        """Leave for good: members that need nothing more from this worker go on. Calling it again does nothing."""
        self._reception.close()
        if self._comm is not None:
            self._comm.leave()
            self._comm = None

    def _enter(self, decision: Decision, listener: socket.socket) -> View:
        """Connect to the members."""
        self._epoch, self._members = decision.epoch, list(decision.members)
        listens = [(self._hosts[rank], port) for rank, port in zip(decision.members, decision.ports, strict=True)]
        self._comm = self._connect(listener, decision.members, listens, bytes.fromhex(decision.token))
        return View(decision.epoch, decision.members, decision.steps, self._comm)

    # ---------------------------------------------------------------- the agreement

    def _agree(self, steps: int | None, port: int, limit: float) -> Decision:
        """Return the decision of the lowest living worker. Raises: _AgainError, Minority."""
        own = Join(self._group, self._rank, self._epoch, steps, port)
        hosts = {rank: host for rank, host in enumerate(self._hosts) if rank != self._rank}
        with closing(Calls(hosts, asdict(own), self._deadline_s)) as calls:
            while time.monotonic() < limit:
                decision = self._answered(calls) or self._decide(own, calls, self._reception.callers())
                if decision is not None:
                    return decision
                calls.wait(self._reception.changed, limit)
        raise _AgainError

    def _answered(self, calls: Calls) -> Decision | None:
        """What another worker has decided, with this one as a member. Raises: _AgainError, Minority."""
        for rank, answer in calls.answers():
            if "minority" in answer:
                raise Minority(answer["minority"])
            if "epoch" in answer:
                decision = Decision(**answer)
                strangers = [caller for caller in self._reception.callers() if caller not in decision.members]
                self._reception.answer(strangers, {"without_you": rank})
                return decision
            lowest = answer["without_you"]
            if calls[lowest] is State.UNREACHABLE:
                raise Minority(f"rank {self._rank} cannot reach rank {lowest}, with which rank {rank} goes on")
            if calls[lowest] is not State.CALLED:
                raise _AgainError  # this call came too late for that epoch
        return None

    def _decide(self, own: Join, calls: Calls, callers: Mapping[int, Join]) -> Decision | None:
        """Decide, if this is the lowest living worker and all that are alive have asked; else None.

        Raises:
            _AgainError, Minority.
        """
        lowest = self._lowest_alive(calls)
        if lowest is None:
            return None
        if any(rank < lowest for rank in callers):
            raise _AgainError  # it has been started since it was called
        if lowest != own.rank or any(rank not in callers for rank in calls.having(State.CALLED, State.ALIVE)):
            return None
        return self._settle({own.rank: own, **callers}, calls.having(State.UNREACHABLE))

    def _lowest_alive(self, calls: Calls) -> int | None:
        """The lowest living worker; None if that is not known yet."""
        for rank in range(self._rank):
            if calls[rank] in (State.ALIVE, State.CALLED):
                return rank if calls[rank] is State.ALIVE else None
        return self._rank

    def _settle(self, joins: Mapping[int, Join], unreachable: Sequence[int]) -> Decision:
        """Decide on the members, and tell them. Raises: Minority."""
        members = sorted(joins)
        missing = [rank for rank in unreachable if rank not in joins]
        reason = None
        if not is_majority(len(members), len(missing)):
            reason = f"ranks {members} cannot reach ranks {missing}, so they may be the smaller side"
        elif all(join.steps is None for join in joins.values()):
            reason = f"ranks {members} have returned, and nobody is left who has a model"
        if reason is not None:
            self._reception.answer(members[1:], {"minority": reason})
            raise Minority(reason)
        decision = Decision(
            epoch=max(join.epoch for join in joins.values()) + 1,
            members=members,
            steps=[joins[rank].steps for rank in members],
            ports=[joins[rank].port for rank in members],
            token=secrets.token_hex(mesh.TOKEN_BYTES),
        )
        self._reception.answer(members[1:], asdict(decision))
        return decision
