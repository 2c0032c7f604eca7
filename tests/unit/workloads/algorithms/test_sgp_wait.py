"""Push-sum gossip that continues without a share: late shares are added, and the sum is kept."""

from __future__ import annotations

from collections import deque

import pytest
import torch

from wanbench.workloads.algorithms.base import AlgorithmError, Replica, Setting
from wanbench.workloads.algorithms.sgp import SGP
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.work import DirectWork
from wanbench.workloads.compute.optim import SGDConfig, make


class Mailbox:
    """A connection of two ranks in one thread; nothing arrives while it is cut."""

    def __init__(self) -> None:
        self.letters = {0: deque(), 1: deque()}
        self.cut = self.slow = False


class Sent:
    def done(self):
        return True

    def wait(self):
        return None


class Received:
    def __init__(self, box, rank, vector):
        self.box, self.rank, self.vector, self.here, self.timeouts = box, rank, vector, False, []
        box.waiting = [*getattr(box, "waiting", []), self]

    def done(self):
        if self.here:
            return True
        first = next(work for work in self.box.waiting if work.rank == self.rank and not work.here)
        if not self.box.cut and first is self and self.box.letters[self.rank]:
            self.vector.copy_(self.box.letters[self.rank].popleft())
            self.here = True
        return self.here

    def wait(self):
        assert self.done(), "no rank may wait for a share that never arrives"

    def wait_for(self, seconds):
        self.timeouts.append(seconds)
        return self.done() and not self.box.slow


class Comm:
    world_size = 2

    def __init__(self, box, rank):
        self.box, self.rank = box, rank

    def send(self, vector, dst):
        self.box.letters[dst].append(vector.clone())
        return Sent()

    def recv(self, vector, src):
        return Received(self.box, self.rank, vector)


def two(wait="200ms"):
    box, algorithms = Mailbox(), []
    for rank in range(2):
        algorithm = SGP(wait=wait)
        w = torch.full((3,), float(rank))
        algorithm.start(Replica(w=w, m=torch.zeros(3), optimizer=make(SGDConfig(lr=0.1)), comm=Comm(box, rank)))
        algorithms.append(algorithm)
    return box, algorithms


def step(algorithms, number):
    """Call `stepped` for both ranks in one thread: both send before either waits."""
    for algorithm in algorithms:
        algorithm.replica.step = number
        algorithm._push()
    for algorithm in algorithms:
        algorithm._pull()
        algorithm._debias()


def mass(box, algorithms):
    """The sum of all (x, omega), including those in flight."""
    inside = sum(torch.cat([a._x, a._omega]) for a in algorithms)
    return inside + sum((letter for letters in box.letters.values() for letter in letters), torch.zeros(4))


def test_a_step_waits_for_a_share_no_longer_than_its_limit_and_continues():
    box, algorithms = two()
    box.cut = True
    step(algorithms, 0)
    assert [work.timeouts for work in box.waiting] == [[0.2], [0.2]]
    assert [len(algorithm._late) for algorithm in algorithms] == [1, 1]
    assert [algorithm.weight for algorithm in algorithms] == [0.5, 0.5]


def test_the_sum_is_kept_and_the_weights_return_to_one():
    box, algorithms = two()
    before = mass(box, algorithms)
    for number in range(6):
        box.cut = number in (1, 2, 3)
        step(algorithms, number)
        assert torch.allclose(mass(box, algorithms), before)
    assert all(not algorithm._late for algorithm in algorithms)
    assert [algorithm.weight for algorithm in algorithms] == [1.0, 1.0]


def test_at_the_end_every_share_is_waited_for_without_limit():
    box, algorithms = two()
    before = mass(box, algorithms)
    box.cut = True
    step(algorithms, 0)
    box.cut, box.slow = False, True
    for algorithm in algorithms:
        algorithm.finish()
    assert torch.allclose(mass(box, algorithms), before)
    assert [algorithm.weight for algorithm in algorithms] == [1.0, 1.0]


def test_gloo_cannot_stop_waiting():
    with pytest.raises(AlgorithmError, match="wait: collective 'gloo' cannot stop waiting; use 'direct'"):
        SGP(wait="1s").check(Setting(workers=4, collective="gloo"))


def test_a_direct_operation_is_waited_for_as_long_as_requested():
    work = DirectWork("recv from rank 1", timeout_s=5.0)
    assert not work.wait_for(0.01)
    work.complete()
    assert work.wait_for(0.0)
    failed = DirectWork("recv from rank 1", timeout_s=5.0)
    failed.complete("rank 1 closed the connection")
    with pytest.raises(CommError, match="rank 1 closed the connection"):
        failed.wait_for(0.01)
