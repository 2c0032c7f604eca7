"""MNIST-1D is generated: the same signals everywhere, of ten classes that a network can tell apart."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest
import torch
from training_alone import FakeClock
from warm import Warm

from wanbench.workloads.data import mnist1d
from wanbench.workloads.registry import make_task

DIGEST = "from wanbench.workloads.data import mnist1d; print(mnist1d.read().train.numpy().tobytes().hex()[:4000])"


def test_signals_have_ten_classes_mean_0_and_variance_1():
    data = mnist1d.read()
    assert (data.train.shape, data.test.shape) == ((500, 1, 1, 40), (5000, 1, 1, 40))
    assert Counter([*data.train_labels, *data.test_labels.tolist()]) == dict.fromkeys(range(10), 550)
    x = data.normalised(data.train)
    assert (float(x.mean()), float(x.std())) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-6))


def test_another_process_generates_the_same_signals():
    shown, _ = Warm(DIGEST, err=2).communicate()
    assert shown.strip() == mnist1d.read().train.numpy().tobytes().hex()[:4000]


def test_no_signal_is_both_trained_on_and_tested():
    data = mnist1d.read()
    digests = [sha256(signal.numpy().tobytes()).hexdigest() for signal in [*data.train, *data.test]]
    assert len(set(digests)) == len(digests)


@pytest.mark.long  # trains for 300 steps; other models learn each time
def test_a_residual_network_learns_it_and_errs_on_some():
    task = make_task({"name": "mnist1d-resnet8"}, 0, 1, 1, FakeClock(), 1 << 20, {"batch_size": 64})
    untrained = task.accuracy(task.snapshot(task.w))
    m = torch.zeros_like(task.w)
    for step in range(300):
        g, _ = task.gradient(step)
        task.w.add_(m.mul_(0.9).add_(g), alpha=-0.03)
    assert untrained < 0.3 < 0.7 < task.accuracy(task.snapshot(task.w)) < 0.99
