"""The stability limit of delayed updates agrees with closed forms, with the recurrence itself, and with training."""

from __future__ import annotations

import csv

import pytest

import scripts

_script = scripts.load("benchmarks/stability.py")
FOLDER, delayed_limit, found_by_training, synchronous_limit = (
    getattr(_script, name) for name in ("FOLDER", "delayed_limit", "found_by_training", "synchronous_limit")
)

DERIVED = {1: 1.00, 2: 0.526, 3: 0.303, 4: 0.197, 8: 0.068, 12: 0.037, 16: 0.025, 20: 0.0187}
"""With momentum 0.9, by delay."""


def shrinks(a, delay, momentum, steps=30_000):
    """Return whether the difference of two replicas shrinks, by iterating its recurrence."""
    factors = [(1 - momentum ** (k + 1)) / (1 - momentum) for k in range(delay)]
    recent, sizes = [1.0] + [0.0] * (delay - 1), []
    for _ in range(steps):
        recent = [-a * sum(c * y for c, y in zip(factors, recent, strict=True)), *recent[:-1]]
        sizes.append(abs(recent[0]))
        if sizes[-1] > 1e6:
            return False
    return max(sizes[-1000:]) < max(sizes[:1000])


@pytest.mark.parametrize(("delay", "limit"), DERIVED.items())
def test_with_momentum_the_limit_falls_with_the_delay(delay, limit):
    assert delayed_limit(delay, 0.9) == pytest.approx(limit, rel=0.02)


@pytest.mark.parametrize("delay", DERIVED)
def test_without_momentum_the_limit_is_one_at_any_delay(delay):
    assert delayed_limit(delay, 0.0) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_two_steps_have_a_closed_form(momentum):
    # z^2 + a z + a (1 + momentum): the product of complex roots is their squared modulus
    assert delayed_limit(2, momentum) == pytest.approx(1 / (1 + momentum), rel=1e-6)


@pytest.mark.parametrize(("delay", "momentum"), [(3, 0.5), (7, 0.9), (20, 0.9), (5, 0.99)])
def test_the_recurrence_shrinks_below_the_limit_and_grows_above(delay, momentum):
    limit = delayed_limit(delay, momentum)
    assert shrinks(0.99 * limit, delay, momentum)
    assert not shrinks(1.01 * limit, delay, momentum)


@pytest.mark.long  # the limits are found by training, in tests/unit/workloads/algorithms, each time
@pytest.mark.parametrize(("delay", "momentum"), [(1, 0.0), (20, 0.0), (4, 0.9), (20, 0.9)])
def test_training_converges_below_the_limit_and_diverges_above(delay, momentum):
    converges, diverges = found_by_training(delay, momentum)
    assert converges < delayed_limit(delay, momentum) < diverges < 1.03 * converges


def test_synchronous_sgd_has_limits_of_2_and_3_8():
    assert (synchronous_limit(0.0), synchronous_limit(0.9)) == pytest.approx((2.0, 3.8))


def test_the_committed_points_are_what_is_computed_now():
    with (FOLDER / "stability.csv").open() as file:
        points = [row for row in csv.DictReader(file) if row["algorithm"] == "delayed"]
    assert len(points) == 40
    for row in points:
        limit = delayed_limit(int(row["delay_steps"]), float(row["momentum"]))
        assert float(row["computed_limit"]) == pytest.approx(limit, rel=1e-6)
