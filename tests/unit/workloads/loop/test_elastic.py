"""The model's way from one epoch of a membership to the next, on real vectors: the mean of those that came furthest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Replica
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.comm.membership import Alone, Minority, View, is_majority
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compute.optim import SGD, AdamW, AdamWConfig, SGDConfig
from wanbench.workloads.loop.elastic import Elastic

SIZE = 5


class Given:
    """A membership whose next epoch is known."""

    def __init__(self, comm, steps, epoch=1):
        self.view = View(epoch, tuple(range(comm.world_size)), tuple(steps), comm)

    def changes(self):
        return False

    def regroup(self, steps):
        return self.view


def recovered(steps, kind="ssgd", params=None, optimizer=None, begins=None):
    """Return (w, m, algorithm, step, history) of every rank after an epoch with these numbers of steps begins.

    `begins` adds a number to the model of some ranks.
    """

    def body(comm):
        rank = comm.rank
        metered = MeteredComm(Alone(), MonotonicClock())
        values = np.arange(SIZE) + 10.0 * rank + (begins or {}).get(rank, 0.0)
        w, m = torch.tensor(values), torch.tensor(-values)
        how = SGD(SGDConfig(momentum=0.9)) if optimizer is None else optimizer(rank)
        replica = Replica(w, m, how, metered)
        algorithm = registry.create(kind, params or {})
        algorithm.start(replica)
        elastic = Elastic(Given(comm, steps), metered, MonotonicClock())
        step = elastic.recover(replica, algorithm, steps[rank])
        return w.numpy(), m.numpy(), algorithm, step, elastic.history

    return run_replicas(len(steps), body)


def test_all_take_the_mean_of_those_in_the_latest_period():
    """Period 4: with 9 and 11 steps two workers are in the third period, the one with 7 is in the second."""
    found = recovered([9, 7, 11], "sparse", {"period": 4})
    expected = np.arange(SIZE) + 10.0 * (0 + 2) / 2
    for w, m, _, step, _ in found:
        np.testing.assert_allclose(w, expected, rtol=1e-12)
        np.testing.assert_allclose(m, -expected, rtol=1e-12)
        assert step == 11


def test_synchronous_sgd_goes_on_with_the_model_that_has_made_one_step_more():
    found = recovered([7, 8, 7])
    for w, _, _, step, _ in found:
        np.testing.assert_array_equal(w, np.arange(SIZE) + 10.0)
        assert step == 8


def test_a_returned_worker_takes_the_model_of_the_others_whatever_its_own_memory_holds():
    found = recovered([None, 3, 3], begins={0: float("nan")})
    for w, m, *_ in found:
        np.testing.assert_array_equal(w, np.arange(SIZE) + 15.0)
        np.testing.assert_array_equal(m, -w)


def test_workers_that_do_not_wait_for_each_other_keep_their_steps_and_a_returned_one_takes_the_most():
    found = recovered([5, 9, None, 2], "adpsgd")
    assert [step for *_, step, _ in found] == [5, 9, 9, 2]
    for w, *_ in found:
        np.testing.assert_allclose(w, np.arange(SIZE) + 10.0 * (0 + 1 + 3) / 3, rtol=1e-12)


def test_the_outer_model_of_diloco_and_its_momentum_outlive_a_loss():
    """w is between two outer steps; theta stays that of the last one."""

    def body(comm):
        metered = MeteredComm(comm, MonotonicClock())
        w = torch.zeros(SIZE, dtype=torch.float64)
        replica = Replica(w, w.clone(), SGD(SGDConfig()), metered)
        algorithm = registry.create("diloco", {"period": 2})
        algorithm.start(replica)
        for step in range(3):  # one outer step, and one local step after it
            w.add_(1.0 + comm.rank)
            replica.step = step
            algorithm.stepped()
        before = [vector.clone() for vector in algorithm.lasting]
        elastic = Elastic(Given(comm, [3] * comm.world_size), metered, MonotonicClock())
        elastic.recover(replica, algorithm, 3)
        return w.clone(), before, [vector.clone() for vector in algorithm.lasting]

    for w, before, after in run_replicas(2, body):
        for old, new in zip(before, after, strict=True):
            torch.testing.assert_close(new, old)
        assert float(before[1].abs().max()) > 0  # there is a momentum to lose
        torch.testing.assert_close(w, before[0] + 1.5)  # theta plus the mean local step


def test_the_second_moment_of_adamw_is_part_of_the_model():
    def trained(rank):
        optimizer = AdamW(AdamWConfig(optimizer="adamw"))
        optimizer.lasting(torch.zeros(SIZE, dtype=torch.float64))[0].fill_(float(rank))
        return optimizer

    moments = []

    def keeping(rank):
        moments.append(optimizer := trained(rank))
        return optimizer

    recovered([4, 4, None], optimizer=keeping)
    for optimizer in moments:
        np.testing.assert_allclose(optimizer.lasting(torch.zeros(SIZE))[0].numpy(), 0.5)


def test_a_second_loss_meanwhile_leads_to_the_epoch_after_it():
    """The first epoch fails in the middle of the agreement, on all ranks; the model is still that of before."""

    class Failing:
        def __init__(self, comm):
            self.rank, self.world_size = comm.rank, comm.world_size

        def all_reduce(self, vector):
            vector.mul_(float("nan"))
            raise CommError("rank 7 closed the connection")

    def body(comm):
        metered = MeteredComm(Alone(), MonotonicClock())
        w = torch.full((SIZE,), float(comm.rank))
        replica = Replica(w, w.clone(), SGD(SGDConfig()), metered)
        algorithm = registry.create("ssgd", {})
        algorithm.start(replica)
        views = [View(1, (0, 1, 7), (2, 2, 2), Failing(comm)), View(2, (0, 1), (2, 2), comm)]
        given = Given(comm, [2, 2])
        given.regroup = lambda steps: views.pop(0)
        elastic = Elastic(given, metered, MonotonicClock())
        elastic.recover(replica, algorithm, 2)
        return w.tolist(), [each.epoch for each in elastic.history]

    assert run_replicas(2, body) == [([0.5] * SIZE, [2])] * 2


def test_without_any_model_left_training_is_over():
    with pytest.raises(Minority, match="all workers with a model are lost"):
        recovered([None, None])


@pytest.mark.parametrize(
    ("members", "unreachable", "may"), [(1, 0, True), (2, 1, True), (1, 1, False), (2, 2, False), (3, 2, True)]
)
def test_at_most_one_side_of_a_divided_network_goes_on(members, unreachable, may):
    assert is_majority(members, unreachable) is may
    assert not (is_majority(members, unreachable) and is_majority(unreachable, members))
