"""A server that takes an outer step for each update of a worker, as soon as it arrives."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from wanbench.workloads.algorithms.delayed_nesterov import DelayedNesterov
from wanbench.workloads.algorithms.server import Desk, Letter
from wanbench.workloads.comm.base import BackgroundComm

NS = 1e9


@dataclass
class Pace:
    """What the server knows about the speed of a worker, in nanoseconds.

    Attributes:
        step_ns: its compute time per step.
        due_ns: when its next update is expected.
        began_ns: when its round began; None in its first round.
        beyond_ns: from the begin of its last round to the arrival of its update, less its compute time.
    """

    step_ns: float
    due_ns: float
    began_ns: int | None = None
    beyond_ns: float = 0.0

    def arrived(self, now_ns: int, steps: float, step_ns: float) -> None:
        """Note the update of a round."""
        self.step_ns = step_ns
        if self.began_ns is not None:
            self.beyond_ns = now_ns - self.began_ns - steps * step_ns

    def begins(self, now_ns: int, steps: int) -> None:
        """Expect the update of a round that begins now."""
        self.began_ns = now_ns
        self.due_ns = now_ns + steps * self.step_ns + self.beyond_ns


@dataclass(frozen=True)
class Terms:
    """When workers send, and what is merged together; see `async_local_sgd`.

    Attributes:
        period: H. dynamic: whether slower workers make fewer steps per round. max_wait_ns: the longest wait of a group.
    """

    period: int
    dynamic: bool
    max_wait_ns: int = 0


class UpdateServer:
    """Merges the updates of workers until all have written their last letter.

    A letter with a vector is an update; its numbers are the local steps and their compute time per step in seconds. One
    without a vector says in how many steps the first update follows.

    Args:
        workers: their ranks.
        outer: the vector and its steps.
        lock: held while the vector changes.
    """

    def __init__(self, workers: Collection[int], outer: DelayedNesterov, lock: threading.Lock, terms: Terms) -> None:
        self.workers, self.outer, self.lock, self._terms = frozenset(workers), outer, lock, terms
        self._paces: dict[int, Pace] = {}

    @property
    def peers(self) -> Collection[int]:
        """The ranks of other servers that write."""
        return ()

    def updated(self, desk: Desk) -> None:
        """Called after each update."""

    def heard(self, desk: Desk, letter: Letter) -> None:
        """Called with each letter of another server."""

    def ended(self, desk: Desk) -> None:
        """Called when all workers have written their last letter, before they are answered."""

    def run(self, comm: BackgroundComm) -> None:
        """Serve.

        Raises:
            CommError: a peer is gone.
        """
        desk = Desk(comm, sorted({*self.workers, *self.peers}), self.outer.theta)
        while desk.sources & self.workers:
            group = self._group(desk)
            for letter in group:
                self._merge(desk, letter)
            for letter in group:
                if not letter.last:
                    steps = self._steps_of(letter.source)
                    self._paces[letter.source].begins(comm.now(), steps)
                    desk.answer(letter.source, self.outer.theta, steps)
        self.ended(desk)
        for worker in sorted(self.workers):
            desk.answer(worker, self.outer.theta, self._terms.period)
        desk.drain()

    def _group(self, desk: Desk) -> list[Letter]:
        """Wait for an update, and return it with those that are merged together with it."""
        group: list[Letter] = []
        while desk.sources & self.workers:
            letter = desk.take(self._until_ns(desk, group))
            if letter is None:
                break
            if letter.source not in self.workers:
                self.heard(desk, letter)
            elif letter.vector is None and not letter.last:
                steps, step_s = letter.values[:2]
                self._paces[letter.source] = Pace(step_s * NS, letter.arrived_ns + steps * step_s * NS)
            else:
                group.append(letter)
        return group

    def _until_ns(self, desk: Desk, group: list[Letter]) -> int | None:
        """Until when to wait for further updates of a group; None if it has none yet."""
        if not group:
            return None
        first_ns, limit_ns = group[0].arrived_ns, self._terms.max_wait_ns
        others = desk.sources - {letter.source for letter in group}
        due = (self._paces[source].due_ns for source in others if source in self._paces)
        soon = any(abs(due_ns - first_ns) <= limit_ns for due_ns in due)
        return first_ns + limit_ns if soon else desk.comm.now()

    def _merge(self, desk: Desk, letter: Letter) -> None:
        if letter.vector is None:
            return
        steps, step_s = letter.values[:2]
        self._paces[letter.source].arrived(letter.arrived_ns, steps, step_s * NS)
        with self.lock:
            self.outer.step(letter.vector)
        self.updated(desk)

    def _steps_of(self, worker: int) -> int:
        """H_k of the next round."""
        if not self._terms.dynamic:
            return self._terms.period
        fastest = min(pace.step_ns for pace in self._paces.values())
        own = self._paces[worker].step_ns
        return max(1, round(self._terms.period * fastest / own)) if own else self._terms.period
