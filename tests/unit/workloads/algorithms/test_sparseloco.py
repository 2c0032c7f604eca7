"""SparseLoCo against the paper's equations, written out for all workers at once in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from trained import NUMEL, OPTIMIZERS, START, WORKERS, Replicas, assert_equal, trained

from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.algorithms.diloco import DiLoCo
from wanbench.workloads.algorithms.sparseloco import SparseLoCo

EVERYTHING = {"kind": "chunk-topk", "chunk": 4, "kept": 4, "quantised": False}
FEW = {"kind": "chunk-topk", "chunk": 4, "kept": 2}


def two_bits(x):
    """Q: signs, and the mean magnitude (as float32) of those above and of those up to the mean magnitude."""
    magnitude, found = np.abs(x), np.zeros_like(x)
    large = magnitude > magnitude.mean()
    for members in (large, ~large):
        if members.any():
            found[members] = np.sign(x[members]) * np.float32(magnitude[members].mean())
    return found


def compressed(e, chunk, kept):
    """Q(TopK(e)) by chunks; the last chunk is filled up with zeros."""
    c = np.zeros_like(e)
    for begin in range(0, len(e), chunk):
        part = e[begin : begin + chunk]
        largest = np.argsort(-np.abs(part), kind="stable")[:kept]
        filled = np.append(part[largest], np.zeros(kept - len(largest)))
        c[begin + largest] = two_bits(filled)[: len(largest)]
    return c


@pytest.mark.parametrize("decay", [0.0, 0.95, 1.0])
@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_each_round_follows_the_equations(config, decay):
    trace = trained(lambda: SparseLoCo(period=5, outer_lr=0.8, decay=decay, compression=FEW), config)
    replicas, theta, e = Replicas(config), START.numpy().copy(), np.zeros((WORKERS, NUMEL))
    for step in range(30):
        replicas.step(step)
        if (step + 1) % 5 == 0:
            e = decay * e + (theta - replicas.w.numpy())
            c = np.stack([compressed(each, chunk=4, kept=2) for each in e])
            e -= c
            theta = theta - 0.8 * c.mean(axis=0)
            replicas.w[:] = torch.from_numpy(theta)
        assert_equal(trace.w_at[step], replicas.w)
    assert_equal(trace.w, torch.from_numpy(theta))


@pytest.mark.parametrize("compression", [EVERYTHING, "none"], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.95])
@pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_with_all_elements_unquantised_it_is_diloco_without_momentum(config, decay, compression):
    plain = trained(lambda: DiLoCo(period=4, outer_lr=0.6, momentum=0), config)
    sparse = trained(lambda: SparseLoCo(period=4, outer_lr=0.6, decay=decay, compression=compression), config)
    assert_equal(sparse.w_at, plain.w_at)


def test_a_kept_residual_is_that_of_diloco_with_error_feedback():
    plain = trained(lambda: DiLoCo(period=3, outer_lr=1, momentum=0, compression=FEW))
    assert_equal(trained(lambda: SparseLoCo(period=3, decay=1, compression=FEW)).w_at, plain.w_at)


def test_the_message_of_a_chunk_has_twelve_bits_an_index_two_a_value_and_two_floats():
    each = 64 * 12 // 8 + 64 * 2 // 8 + 2 * 4
    assert SparseLoCo(period=30).message_bytes(4096) == each == 120
    assert SparseLoCo(period=30).message_bytes(10 * 4096 + 1) == 11 * each
    assert SparseLoCo(period=30).period_steps == 30


def test_replicas_agree_and_the_law_does_not_cover_an_all_gather():
    promises = SparseLoCo(period=2).promises
    assert (promises.agrees, promises.follows_law) == (True, False)
    assert SparseLoCo(period=2, compression="none").promises.follows_law


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"period": 2, "decay": 1.5}, "decay = 1.5; expected a number, from 0 to 1"),
        ({"period": 2, "outer_lr": 0}, "outer_lr = 0; expected a number, above 0 to 100"),
        ({"period": 2, "compression": {"kind": "chunk-topk", "kept": 0}},
         "compression: compressor 'chunk-topk': kept = 0; expected a whole number, 1 or more"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(params, message):
    with pytest.raises(AlgorithmError) as caught:
        SparseLoCo(**params)
    assert str(caught.value) == f"algorithm 'sparseloco': {message}"


def test_a_compressor_with_momentum_is_refused():
    with pytest.raises(AlgorithmError, match=r"'sparseloco': compression: momentum = 0.9; expected 0"):
        SparseLoCo(period=6, compression={"kind": "dgc", "momentum": 0.9}).check(Setting(workers=4))


def test_it_needs_an_all_gather():
    with pytest.raises(AlgorithmError, match="'chunk-topk' needs an all_gather"):
        SparseLoCo(period=6).check(Setting(workers=4, collective="hierarchical"))
