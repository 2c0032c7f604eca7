"""Predictions of published measurements are computed again, and are those that are committed."""

from __future__ import annotations

import pytest

import scripts

published = scripts.load("benchmarks/published.py")
SOURCES = published.load(published.FOLDER)
QUICK = ("sharded-ps-tc", "torchft-storm-k60")
SLOW = {"tcp-loss-rate": 8, "tcp-loss-rtt": 8, "tcp-loss-netns": 4}
"""Every which number is computed again: nine repetitions, packet by packet, take up to a minute."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in SOURCES]
)
def test_the_predictions_of_a_source_are_those_that_are_committed(name):
    source = SOURCES[name]
    numbers = source.number[:: SLOW.get(name, 1)]
    again = list(published.predictions(name, source.model_copy(update={"number": numbers}), published.FOLDER))
    committed = [line for line in published.read(published.FOLDER / published.PREDICTIONS) if line["source"] == name]
    assert len(committed) == len(source.number) * len(source.reading)
    part = [line for number, line in enumerate(committed) if number % len(source.number) % SLOW.get(name, 1) == 0]
    assert again == [line | {"spread": line["spread"] and tuple(line["spread"])} for line in part]
