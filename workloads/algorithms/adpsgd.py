"""AD-PSGD: pairs of neighbours average when both are ready, and no worker waits for another.

Odd ranks are active, even ranks passive, so no two workers wait for each other. For active i and passive j::

    i, between two steps, without an outstanding answer:    send x_i to a random neighbour j ;  s <- x_i
    j, between two steps, if a message has arrived:         send x_j back ;  x_j <- (x_i + x_j) / 2
    i, between two steps, if the answer has arrived:        x_i <- x_i + (x_j - s) / 2

The sum of a pair is therefore conserved, whatever steps both take in between. The paper uses a separate gossip thread;
here each worker polls after each step, so an answer is late by at most one step of the passive worker.

Each vector is preceded by a note of one number: 1 means that a vector follows, 0 is the end. `finish` sends ends, so
passive workers know when to stop listening.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises, Replica, Setting
from wanbench.workloads.algorithms.gossip import ring
from wanbench.workloads.algorithms.inbox import Inbox, has_ended, note
from wanbench.workloads.comm.base import Work


@dataclass
class ADPSGD(Algorithm):
    """Asynchronous gossip on a ring: no worker waits for another.

    AD-PSGD: neighbours average in pairs between steps (equations: see the module). It needs an even number of workers,
    half of them active and half passive, and messages that can be polled, which `gloo` does not support. The pairs
    depend on timing, so runs repeat exactly on the virtual testbed only. Momentum stays local.
    """

    kind = "adpsgd"
    source = "Lian, Zhang, Zhang and Liu, Asynchronous Decentralized Parallel SGD, ICML 2018"

    promises = Promises(repeats=False, goes_on=True)  # messages are used on arrival, and no step waits
    without_a_peer = (
        "steps continue: no worker waits before `finish`. A worker whose request is unanswered asks no other neighbour"
    )
    when_lost = (
        "the others shrink: each goes on with its own step from the mean of their models. A worker that returns takes "
        "that model"
    )
    state = ("_random",)
    least_workers = 2

    def operations(self, world_size: int) -> int:
        """Send and receive a note and a vector for each of two neighbours."""
        return 8

    def check(self, setting: Setting) -> None:
        super().check(setting)
        if setting.workers % 2:
            raise AlgorithmError(f"algorithm 'adpsgd' needs an even number of workers, got {setting.workers}")
        if setting.collective == "gloo":
            raise AlgorithmError("algorithm 'adpsgd' polls for messages, which 'gloo' cannot; use collective 'direct'")

    def start(self, replica: Replica) -> None:
        super().start(replica)
        comm = replica.comm
        around = ring(comm.rank, comm.world_size) if comm.world_size > 1 else []
        # If a loss leaves an odd number, the ring has two passive workers side by side, which do not exchange.
        self._neighbours = [peer for peer in around if (peer - comm.rank) % 2]
        self._active = comm.rank % 2 == 1
        self._random = random.Random(f"{replica.seed} {comm.rank}")
        self._inboxes = [] if self._active else [Inbox(comm, peer, replica.w) for peer in self._neighbours]
        self._sent, self._answer = replica.w.clone(), replica.w.clone()
        self._answer_work: Work | None = None
        self._sends: list[Work] = []

    def stepped(self) -> None:
        """Poll for messages and answer them; never stalls.

        Raises:
            CommError: a peer is gone.
        """
        self._sends = [work for work in self._sends if not has_ended(work)]
        if not self._active:
            for inbox in self._inboxes:
                self._serve(inbox, 0.0)
            return
        if self._answer_work is not None and self._answer_work.done():
            self._take_answer()
        if self._answer_work is None and self._neighbours:
            peer = self._random.choice(self._neighbours)
            self._sent.copy_(self.replica.w)
            self._sends += [self.replica.comm.send(message, peer) for message in (note(1.0), self._sent)]
            self._answer_work = self.replica.comm.recv(self._answer, peer)

    def finish(self) -> None:
        """Answer all remaining requests, and wait for the outstanding answer.

        Raises:
            CommError: a peer is gone.
        """
        if self._active:
            # Before waiting: a passive worker serves its neighbours in turn, and must not wait for one that waits.
            self._sends += [self.replica.comm.send(note(0.0), peer) for peer in self._neighbours]
            if self._answer_work is not None:
                self._take_answer()
        for inbox in self._inboxes:
            while self._serve(inbox, None):
                pass
            inbox.ended = False
        for work in self._sends:
            work.wait()
        self._sends = []

    def _serve(self, inbox: Inbox, wait_s: float | None) -> bool:
        """Answer one message; False if there is none."""
        received, w = inbox.take(wait_s), self.replica.w
        if received is None:
            return False
        self._sends.append(self.replica.comm.send(w, inbox.peer))
        w.add_(received).mul_(0.5)
        return True

    def _take_answer(self) -> None:
        assert self._answer_work is not None, "an answer is outstanding"
        self._answer_work.wait()
        self._answer_work = None
        self.replica.w.add_(self._answer, alpha=0.5).add_(self._sent, alpha=-0.5)
