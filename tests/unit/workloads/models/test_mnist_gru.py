"""The recurrent network that reads the rows of an image."""

import data_sets
import pytest
import torch
from training_alone import FakeClock, one_thread  # noqa: F401  # the fixture is used by all

from wanbench.workloads.models import mnist_gru
from wanbench.workloads.registry import info, make_task


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    module = mnist_gru.module_of(torch.Generator())
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in mnist_gru.tensors()] == expected
    # Three gates of 32 units, each from 28 inputs and 32 states with two biases; ten classes from 32 states.
    assert info({"name": "mnist-gru"}).params == 3 * 32 * (28 + 32 + 2) + 10 * (32 + 1) == 6282


def test_the_rows_are_read_from_the_top_and_each_changes_the_scores():
    module = mnist_gru.module_of(torch.Generator().manual_seed(1))
    image = torch.randn(1, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    scores = module(image)
    assert scores.shape == (1, 10)
    turned = module(image.flip(2))
    assert not torch.allclose(scores, turned)
    for row in (0, 27):
        changed = image.clone()
        changed[0, 0, row] += 1
        assert not torch.equal(module(changed), scores)


@pytest.mark.long  # other models learn each time
def test_one_worker_learns_where_the_bright_stripe_is(tmp_path):
    spec = {"name": "mnist-gru", "data": str(data_sets.mnist(tmp_path / "mnist"))}
    task = make_task(spec, 0, 1, 1, FakeClock(), 1 << 20, {"batch_size": 32})
    momentum = torch.zeros_like(task.w)
    before = task.accuracy(task.snapshot(task.w))
    for step in range(200):
        momentum.mul_(0.9).add_(task.gradient(step)[0])
        task.w.add_(momentum, alpha=-0.1)
    assert before < 0.3
    assert task.accuracy(task.snapshot(task.w)) > 0.8


def test_equal_seeds_give_equal_weights_to_all_ranks_and_others_other_ones(tmp_path):
    spec = {"name": "mnist-gru", "data": str(data_sets.mnist(tmp_path / "mnist"))}
    first, second, other = (
        make_task(spec, rank, 2, seed, FakeClock(), 1 << 20, {"batch_size": 2})
        for rank, seed in ((0, 3), (1, 3), (0, 4))
    )
    assert torch.equal(first.w, second.w)
    assert not torch.equal(first.w, other.w)
