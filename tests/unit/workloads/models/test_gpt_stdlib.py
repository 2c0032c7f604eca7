"""The small transformer that learns the source of Python's standard library."""

import math

import pytest
import torch
from training_alone import FakeClock, one_thread  # noqa: F401  # the fixture is used by all

from wanbench.workloads.data.stdlib import CONTEXT, SYMBOLS, read
from wanbench.workloads.models import gpt_stdlib
from wanbench.workloads.registry import info, make_task


@pytest.mark.long  # trains for 150 steps; other models learn each time
def test_one_worker_learns_more_than_that_the_next_byte_is_often_a_space():
    task = make_task({"name": "gpt-stdlib"}, 0, 1, 1, FakeClock(), 1 << 20, {"batch_size": 8})
    assert task.accuracy(task.snapshot(task.w)) < 0.05
    momentum, losses = torch.zeros_like(task.w), []
    for step in range(150):
        g, loss = task.gradient(step)
        losses.append(loss)
        momentum.mul_(0.9).add_(g)
        task.w.add_(momentum, alpha=-0.1)
    share = torch.bincount(read().test[:, 1:].flatten(), minlength=SYMBOLS) / read().test[:, 1:].numel()
    assert float(share.max()) < task.accuracy(task.snapshot(task.w)) < 0.9
    entropy = float(torch.special.entr(share).sum())  # the least loss without knowledge of the bytes before
    assert losses[0] == pytest.approx(math.log(SYMBOLS), rel=0.01)
    assert sum(losses[-10:]) / 10 < entropy


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    module = gpt_stdlib.module_of(torch.Generator())
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in gpt_stdlib.tensors()] == expected
    assert info({"name": "gpt-stdlib"}).params == 136_960


def test_no_prediction_depends_on_a_later_byte():
    module = gpt_stdlib.module_of(torch.Generator().manual_seed(1))
    sample = read().test[:1, :-1]
    changed = sample.clone()
    changed[0, 20] = (changed[0, 20] + 1) % SYMBOLS
    before, after = module(sample), module(changed)
    assert before.shape == (1, CONTEXT, SYMBOLS)
    assert torch.equal(before[0, :20], after[0, :20])
    assert not torch.allclose(before[0, 20:], after[0, 20:])


def test_equal_seeds_give_equal_workers_and_other_ranks_other_batches():
    tasks = [
        make_task({"name": "gpt-stdlib"}, rank, 2, 3, FakeClock(), 1 << 20, {"batch_size": 2}) for rank in (0, 0, 1)
    ]
    assert torch.equal(tasks[0].w, tasks[1].w)
    assert torch.equal(tasks[0].w, tasks[2].w)
    gradients = [task.gradient(0)[0].clone() for task in tasks]
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])
