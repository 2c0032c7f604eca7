"""Predictions of published measurements are computed again, and are those that are committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanbench.harness.analysis.published import PREDICTIONS, load, read
from wanbench.harness.published import predictions

FOLDER = Path(__file__).parents[2] / "results" / "reference" / "published"
SOURCES = load(FOLDER)
QUICK = ("nccl-aws-tc", "sharded-ps-tc", "torchft-storm-k60")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in SOURCES]
)
def test_the_predictions_of_a_source_are_those_that_are_committed(name):
    committed = [line for line in read(FOLDER / PREDICTIONS) if line["source"] == name]
    assert list(predictions(name, SOURCES[name], FOLDER)) == [
        line | {"spread": line["spread"] and tuple(line["spread"])} for line in committed
    ]
