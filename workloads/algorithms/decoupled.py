"""Decoupled DiLoCo, reconstructed: learners at their own pace, and outer steps that need only a quorum of them.

**A reconstruction.** Only the abstract of "Decoupled DiLoCo" (2026, arXiv 2604.21428) and a summary of it were
available: learners without a common clock, a syncer that merges a fragment of the model once K of the M learners have
sent it, weights w = tokens * (tokens / steps), an outer Nesterov step, fragments and overlap as in Streaming DiLoCo.
Its pseudo-code was not. These parts are guesses:

* who waits: a learner that has not got its fragment back tau steps after it was sent waits for it. So the K fastest do
  not wait for the others, and what a slow learner sends counts in a later quorum;
* exactly K learners are merged at a time, in the order of arrival, or all that are left once fewer than K are;
* if all learners wait, the fragment that was sent first is merged without a quorum, or nobody would go on.

The paper merges norms and directions apart, which is left out: how it does so is not known. With K = M, one fragment
and no overlap it is DiLoCo.

Each learner m sends the next fragment p, a slice of its w, every H / P steps of its own, with the steps since it last
sent p. Vectors have shape (numel / P,); tokens are steps times a batch size, which is equal for all, so w_m is
proportional to the steps::

    syncer, with K learners' theta_m,p:   Delta_p = sum w_m (Theta_p - theta_m,p) / sum w_m
                                          Theta_p <- Nesterov(Theta_p, Delta_p; outer_lr, momentum)
    those learners, tau steps after they sent p, or when it arrives:   theta_m,p <- Theta_p

The syncer runs beside the worker of rank 0.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wanbench.workloads.algorithms.base import Algorithm, Promises, Replica, Setting, at_least, between
from wanbench.workloads.algorithms.diloco import Outer
from wanbench.workloads.algorithms.server import WHEN_LOST, Answer, Client, Desk, refuse_gloo
from wanbench.workloads.comm.base import BackgroundComm, Vector, Work
from wanbench.workloads.compression.base import Shapes

SYNCER = 0


@dataclass(frozen=True)
class Sent:
    """What a learner has sent of a fragment, with its place in the order of arrival."""

    place: int
    learner: int
    steps: float
    theta: Vector


class Syncer:
    """Merges fragments until all learners have written their last letter; see the module.

    A letter has the number of a fragment, steps, and whether it belongs to `finish`. Without a vector, it says that the
    learner waits for the fragment.

    Args:
        outers: the global fragments and their steps.
        lock: held while they change.
        quorum: K.
    """

    def __init__(self, outers: Sequence[Outer], lock: threading.Lock, quorum: int) -> None:
        self._outers, self._lock, self._quorum = outers, lock, quorum
        self._pending: list[list[Sent]] = [[] for _ in outers]
        self._last: list[list[Sent]] = [[] for _ in outers]  # those of `finish`
        self._waiting: dict[int, int] = {}  # by learner, the fragment

    def run(self, comm: BackgroundComm) -> None:
        """Serve all ranks.

        Raises:
            CommError: a peer is gone.
        """
        desk = Desk(comm, range(comm.world_size), self._outers[0].theta)
        for place in itertools.count():
            if not desk.sources:
                break
            letter = desk.take()
            assert letter is not None, "without a time limit there is a letter"
            number, steps, finishes = letter.values
            fragment = int(number)
            if letter.vector is not None:
                sent = Sent(place, letter.source, steps, letter.vector)
                (self._last if finishes else self._pending)[fragment].append(sent)
            elif not letter.last:
                self._waiting[letter.source] = fragment
            self._merge_what_is_due(desk)
        for fragment, sent_last in enumerate(self._last):
            if sent_last:
                self._merge(fragment, sent_last)
            for rank in range(comm.world_size):
                desk.answer(rank, self._outers[fragment].theta, stream=fragment)
        desk.drain()

    def _merge_what_is_due(self, desk: Desk) -> None:
        quorum = min(self._quorum, len(desk.sources))
        while (fragment := self._due(quorum, desk.sources)) is not None:
            merged = self._pending[fragment][:quorum]
            del self._pending[fragment][:quorum]
            self._merge(fragment, merged)
            for sent in merged:
                if self._waiting.get(sent.learner) == fragment:
                    del self._waiting[sent.learner]
                desk.answer(sent.learner, self._outers[fragment].theta, stream=fragment)

    def _due(self, quorum: int, learners: set[int]) -> int | None:
        """The next fragment to merge, if there is one."""
        sent = [(each[0].place, fragment) for fragment, each in enumerate(self._pending) if each]
        complete = [(place, fragment) for place, fragment in sent if len(self._pending[fragment]) >= quorum]
        held_up = [
            learner
            for learner, fragment in self._waiting.items()
            if any(each.learner == learner for each in self._pending[fragment])  # else the answer is on its way
        ]
        if sent and learners <= set(held_up):
            complete = complete or sent
        return min(complete)[1] if complete else None

    def _merge(self, fragment: int, sent: Sequence[Sent]) -> None:
        """Take the outer step with what several learners have sent."""
        outer = self._outers[fragment]
        total = sum(each.steps for each in sent)
        delta = outer.theta.clone()
        for each in sorted(sent, key=lambda each: each.learner):  # so the bits do not depend on the order of arrival
            delta.add_(each.theta, alpha=-each.steps / total)
        with self._lock:
            outer.step(delta)


@dataclass
class Flight:
    """A fragment that was sent: its number, its answer, where that arrives, and its age in steps."""

    fragment: int
    answer: Answer
    theta: Vector
    age: int = 0


@dataclass
class DecoupledDiLoCo(Algorithm):
    """DiLoCo that waits for K of M learners (a reconstruction).

    The module has the equations, and says what is reconstructed. Each worker is a learner and makes all steps of a run
    at its own pace. `finish` merges the steps that no fragment has carried, of all learners together, and all continue
    from the global model.

    Attributes:
        period: H, steps from one message of a fragment to the next; a multiple of `fragments`.
        fragments: P, the number of fragments.
        delay: tau, the overlap in steps; below H.
        quorum: K, learners per outer step, at most the number of workers; 0 is all.
        outer_lr, momentum: learning rate and momentum of the outer step.
    """

    kind = "decoupled-diloco"
    source = "reconstruction from the abstract of Decoupled DiLoCo, 2026 (arXiv 2604.21428)"
    symbols = {"period": "H", "fragments": "P", "delay": "tau", "quorum": "K"}  # noqa: RUF012
    server = True
    when_lost = WHEN_LOST
    state = ("_outers",)

    without_a_peer = (
        "a worker that cannot reach rank 0 waits; with `quorum` below the number of workers others continue"
    )

    period: int = field(metadata=at_least(1))
    fragments: int = field(default=1, metadata=at_least(1))
    delay: int = field(default=0, metadata=at_least(0))
    quorum: int = field(default=0, metadata=at_least(0))
    outer_lr: float = field(default=0.7, metadata=between(0, 100, open_below=True))
    momentum: float = field(default=0.9, metadata=between(0, 1, open_above=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period % self.fragments:
            self.refuse("period", self.period, f"a multiple of fragments = {self.fragments}")
        if self.delay >= self.period:
            self.refuse("delay", self.delay, f"less than period = {self.period}")

    @property
    def delay_steps(self) -> int:
        """D = tau."""
        return self.delay

    @property
    def period_steps(self) -> int:
        """H / P: steps from one message to the next."""
        return self.period // self.fragments

    @property
    def promises(self) -> Promises:
        """All learners end with the global model. With all in every quorum, it does not depend on arrival."""
        return Promises(agrees=True, repeats=self.quorum == 0)

    def operations(self, world_size: int) -> int:
        """On rank 0: a note expected from each worker, two answers under way to each, and its own message."""
        return 3 * world_size + 5

    def check(self, setting: Setting) -> None:
        super().check(setting)
        refuse_gloo(self.kind, setting)
        if self.quorum > setting.workers:
            self.refuse("quorum", self.quorum, f"at most {setting.workers}, the number of workers")

    def message_bytes(self, numel: int, shapes: Shapes = ()) -> int:
        """Bytes of the largest fragment."""
        return super().message_bytes(-(-numel // self.fragments))

    def start(self, replica: Replica) -> None:
        super().start(replica)
        w, comm = replica.w, replica.comm
        ends = [w.numel() * i // self.fragments for i in range(self.fragments + 1)]
        self._slices = [slice(a, b) for a, b in pairwise(ends)]
        self._outers = [Outer(w[part], self.outer_lr, self.momentum) for part in self._slices]
        self._client, self._lock = Client(comm, SYNCER), threading.Lock()
        self._serving: Work | None = None
        self._serve()
        self._begin()

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), unchanged: steps are local."""
        self._serve()
        return g

    def stepped(self) -> None:
        """Send the next fragment if it is its turn, then wait for the one that is due, if its quorum is not complete.

        Raises:
            CommError: a peer is gone.
        """
        self._steps += 1
        for flight in self._flights:
            flight.age += 1
        turn, between_turns = divmod(self._steps, self.period_steps)
        if not between_turns:
            self._send((turn - 1) % self.fragments)
        while self._flights and self._flights[0].age >= self.delay:
            self._apply(self._flights.popleft())

    @property
    def evaluated(self) -> Vector:
        """The global model on rank 0; elsewhere w."""
        whole: Vector = self.replica.w
        if self.replica.comm.rank == SYNCER:
            whole = whole.clone()
            with self._lock:
                for part, outer in zip(self._slices, self._outers, strict=True):
                    whole[part].copy_(outer.theta)
        return whole

    def finish(self) -> None:
        """Wait for the fragments in flight, send the steps that none has carried, and wait for all learners' merge.

        Raises:
            CommError: a peer is gone.
        """
        while self._flights:
            self._apply(self._flights.popleft())
        for fragment in range(self.fragments):
            if self._steps > self._sent_at[fragment]:
                self._post(fragment, finishes=True)
        self._client.write(None, last=True)
        parts = [self.replica.w[part] for part in self._slices]
        for answer in [self._client.answer(part, stream) for stream, part in enumerate(parts)]:
            answer.wait()
        self._client.drain()
        if self._serving is not None:
            self._serving.wait()
        self._serving = None
        self._begin()

    def _begin(self) -> None:
        self._steps, self._sent_at = 0, [0] * self.fragments
        self._flights: deque[Flight] = deque()

    def _serve(self) -> None:
        """Run the syncer, unless it runs already: it ends with `finish`."""
        comm = self._client.comm
        if self._serving is None and comm.rank == SYNCER:
            syncer = Syncer(self._outers, self._lock, self.quorum or comm.world_size)
            self._serving = comm.background(syncer.run)

    def _send(self, fragment: int) -> None:
        self._post(fragment)
        theta = self._outers[fragment].theta.clone()
        self._flights.append(Flight(fragment, self._client.answer(theta, fragment), theta))

    def _post(self, fragment: int, *, finishes: bool = False) -> None:
        steps = self._steps - self._sent_at[fragment]
        self._sent_at[fragment] = self._steps
        self._client.write(self.replica.w[self._slices[fragment]], fragment, steps, float(finishes))

    def _apply(self, flight: Flight) -> None:
        everyone = self.quorum in (0, self._client.comm.world_size)  # then all send the same fragments
        if not everyone and not flight.answer.done():
            self._client.write(None, flight.fragment)
        flight.answer.wait()
        self.replica.w[self._slices[flight.fragment]].copy_(flight.theta)
