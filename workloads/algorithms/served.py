"""The side of a worker that trains with a server: local steps, then an update and its answer."""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from wanbench.workloads.algorithms.base import Algorithm, Promises, Replica, Setting
from wanbench.workloads.algorithms.delayed_nesterov import DelayedNesterov
from wanbench.workloads.algorithms.server import WHEN_LOST, Client, refuse_gloo
from wanbench.workloads.algorithms.update_server import NS, UpdateServer
from wanbench.workloads.comm.base import Vector, Work


@dataclass
class Served(Algorithm):
    """Local steps from the server's theta, whose change is sent to it; `async_local_sgd` has the equations.

    A subclass says which rank serves this one, and with what. `finish` ends a round early.
    """

    server = True
    when_lost = WHEN_LOST
    state: ClassVar[tuple[str, ...]] = ("_outer", "_theta")

    period: int

    @property
    def promises(self) -> Promises:
        """All workers end with the server's theta, which depends on when messages arrive."""
        return Promises(agrees=True, repeats=False)

    @property
    def period_steps(self) -> int:
        """H."""
        return self.period

    def operations(self, world_size: int) -> int:
        """On a server's rank: what it expects from each worker, two answers under way to each, and its own messages."""
        return 4 * world_size + 6

    def check(self, setting: Setting) -> None:
        super().check(setting)
        refuse_gloo(self.kind, setting)

    @property
    @abstractmethod
    def _server_rank(self) -> int:
        """The rank beside which this worker's server runs."""

    @abstractmethod
    def _make_outer(self) -> DelayedNesterov:
        """Return the vector of a server, with its steps."""

    @abstractmethod
    def _make_server(self) -> UpdateServer:
        """Return the server of this rank."""

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._theta, self._delta = replica.w.clone(), replica.w.clone()
        self._lock = threading.Lock()
        self._outer = self._make_outer()
        self._client = Client(replica.comm, self._server_rank)
        self._serving: Work | None = None
        self._greeted = False
        self._serve()
        self._begin(self.period)

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: steps are local."""
        self._serve()
        return g

    def stepped(self) -> None:
        """After H_k steps: send their change, and wait for the server's answer.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        if not self._greeted:
            self._greeted = True
            self._client.write(None, self._goal - self._steps, self._step_s)
        if self._steps == self._goal:
            self._send(last=False)

    def finish(self) -> None:
        """Send the change since the last answer, and wait until all workers have done so.

        Raises:
            CommError: a peer is gone.
        """
        self._send(last=True)
        self._client.drain()
        if self._serving is not None:
            self._serving.wait()
        self._serving, self._greeted = None, False

    @property
    def evaluated(self) -> Vector:
        """The server's theta beside the server; elsewhere the last one received."""
        if self.replica.comm.rank != self._server_rank:
            return self._theta
        with self._lock:
            return self._outer.theta.clone()

    @property
    def _step_s(self) -> float:
        """Compute time of this round in seconds per step."""
        return (self._client.comm.now() - self._began_ns) / NS / self._steps

    def _serve(self) -> None:
        """Run the server of this rank, unless it runs already: it ends with `finish`."""
        if self._serving is None and self.replica.comm.rank == self._server_rank:
            self._serving = self._client.comm.background(self._make_server().run)

    def _begin(self, steps: int) -> None:
        self._goal, self._steps = steps, 0
        self._began_ns = self._client.comm.now()

    def _send(self, *, last: bool) -> None:
        w = self.replica.w
        change = self._delta.copy_(self._theta).add_(w, alpha=-1.0) if self._steps else None
        self._client.write(change, self._steps, self._step_s if self._steps else 0.0, last=last)
        (steps, *_) = self._client.wait_for_answer(self._theta)
        w.copy_(self._theta)
        self._begin(round(steps))
