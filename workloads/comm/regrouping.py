"""A membership over TCP: workers that are alive find each other again after others were lost, or have returned.

Every worker has a listener at a port that all know (`reception`). One that wants the next epoch calls all others at the
same time, and says how far it is (`calls`)::

    refused      the process is dead, and its machine is not
    no answer    it cannot be reached, and may be alive
    heard        it is alive; it has to ask for the next epoch too

The lowest living worker decides. It waits until all that are alive have asked, and answers them with the members, and
with a token by which their connections know each other. Whatever else happens meanwhile, such as the death of one more
worker or the return of another, begins this again.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from wanbench.workloads.comm import connecting
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.calls import Calls, State
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.membership import Minority, View, is_majority
from wanbench.workloads.comm.reception import Join, Reception


@dataclass(frozen=True)
class Decision:
    """What the lowest living worker has decided.

    Attributes:
        epoch: its number.
        members: in order.
        steps: by member, as in `Join`.
        ports: by member, where it listens.
        token: in hexadecimal; see `connecting.connect`.
    """

    epoch: int
    members: Sequence[int]
    steps: Sequence[int | None]
    ports: Sequence[int]
    token: str


First = Callable[[], DirectComm]
Connect = Callable[[socket.socket, Sequence[int], Sequence[tuple[str, int]], bytes], DirectComm]


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
        first: First,
        connect: Connect,
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
        asks = [each for each in self._reception.callers().values() if not self._has_asked_for_this(each)]
        return bool(asks) or self._comm is None or self._comm.failed

    def _has_asked_for_this(self, join: Join) -> bool:
        return join.rank in self._members and join.epoch < self._epoch

    def regroup(self, steps: int | None) -> View:
        """Return the next epoch, as `Membership` says.

        Raises:
            Minority: this side may be the smaller one, no worker has a model, or there was no agreement in time.
        """
        self._leave("a member asks for the next epoch")
        limit = time.monotonic() + self._timeout_s
        while time.monotonic() < limit:
            with connecting.listen(self._hosts[self._rank]) as listener:
                try:
                    return self._enter(self._agree(steps, listener.getsockname()[1], limit), listener)
                except _AgainError:
                    continue
                except Minority:
                    raise
                except CommError:  # a member was lost before all were connected
                    continue
        raise Minority(f"rank {self._rank} has not agreed with others on the next epoch within {self._timeout_s:g} s")

    def close(self) -> None:
        """Leave for good: members that need nothing more from this worker go on. Calling it again does nothing."""
        self._reception.close()
        if self._comm is not None:
            self._comm.leave()
            self._comm = None

    def _leave(self, reason: str) -> None:
        if self._comm is not None:
            self._comm.give_up(reason)
            self._comm.close()
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
        others = {rank: host for rank, host in enumerate(self._hosts) if rank != self._rank}
        with Calls(others, own.to_json(), self._deadline_s) as calls:
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
                strangers = [each for each in self._reception.callers() if each not in decision.members]
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
            if calls[rank] is State.ALIVE:
                return rank
            if calls[rank] is State.CALLED:
                return None
        return self._rank

    def _settle(self, joins: Mapping[int, Join], unreachable: Sequence[int]) -> Decision:
        """Decide on the members, and tell them. Raises: Minority."""
        members = sorted(joins)
        others = members[1:]
        missing = [rank for rank in unreachable if rank not in joins]
        reason = None
        if not is_majority(len(members), len(missing)):
            reason = f"ranks {members} cannot reach ranks {missing}, so they may be the smaller side"
        elif all(join.steps is None for join in joins.values()):
            reason = f"ranks {members} have returned, and nobody is left who has a model"
        if reason is not None:
            self._reception.answer(others, {"minority": reason})
            raise Minority(reason)
        decision = Decision(
            epoch=max(join.epoch for join in joins.values()) + 1,
            members=members,
            steps=[joins[rank].steps for rank in members],
            ports=[joins[rank].port for rank in members],
            token=secrets.token_hex(connecting.TOKEN_BYTES),
        )
        self._reception.answer(others, asdict(decision))
        return decision
