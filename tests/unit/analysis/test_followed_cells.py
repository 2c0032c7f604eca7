"""A history says which cell changed, at which commit, by how much, and what else changed there."""

from __future__ import annotations

import json

import numpy as np
import pytest
from made_outcomes import SUBJECT, cell, commit, outcomes

from wanbench.harness.analysis.history import LEVEL, follow

CELL, OTHER = "ssgd w4 20ms", "ssgd w4 100ms"


def noisy(shape, seed=0):
    return [float(v) for v in shape * (1 + 0.02 * np.random.default_rng(seed).standard_normal(len(shape)))]


def stepped(count=30, factor=0.8, seed=0):
    return noisy(np.where(np.arange(count) < count // 2, 1.0, factor), seed)


def test_a_change_of_a_simulated_cell_is_exact():
    history = follow(outcomes({CELL: [0.5, 0.5, 0.25, 0.25]}, testbed="virtual"), "scalability")
    (shift,) = history.shifts
    assert (shift.label, shift.at, shift.first, shift.last) == (CELL, 2, 1, 2)
    assert (shift.before, shift.after, shift.change, shift.interval, shift.p) == (0.5, 0.25, -0.5, None, None)
    assert not shift.better


def test_a_change_of_a_measured_cell_has_an_interval_and_a_p_value():
    history = follow(outcomes({CELL: stepped()}), "scalability")
    (shift,) = history.shifts
    assert (shift.at, shift.better) == (15, False)
    low, high = shift.interval
    assert low < -0.2 < high
    assert high - low < 0.06
    assert shift.p <= LEVEL


@pytest.mark.parametrize(
    ("metric", "better"), [("scalability", False), ("accuracy", False), ("step_time_s", True), ("payload_bytes", True)]
)
def test_less_is_worse_only_for_some_metrics(metric, better):
    made = outcomes({CELL: [2.0, 1.0]}, metric=metric, testbed="virtual")
    assert [shift.better for shift in follow(made, metric).shifts] == [better]


def test_commits_without_the_cell_are_skipped_and_widen_the_range():
    made = outcomes({CELL: [1.0, None, None, 2.0], OTHER: [1.0] * 4}, testbed="virtual")
    (shift,) = follow(made, "scalability").shifts
    assert (shift.first, shift.at) == (0, 3)


def test_two_testbeds_are_two_series():
    made = [*outcomes({CELL: [0.5] * 3}, testbed="virtual"), *outcomes({CELL: [0.4] * 3})]
    history = follow(made, "scalability")
    assert history.shifts == ()
    assert [series.label for series in history.series] == [f"{CELL} (relay)", f"{CELL} (virtual)"]


def test_what_else_changed_is_named():
    made = outcomes({CELL: [1.0, 1.0, 2.0]}, testbed="virtual", torch=("2.6", "2.6", "2.7"), processor=("A",) * 3)
    assert follow(made, "scalability").shifts[0].also == ("torch 2.6 -> 2.7",)


@pytest.mark.parametrize(("codes", "also"), [(("c", "c"), ("the code is the same",)), (("c", "d"), ())])
def test_a_measured_change_without_a_change_of_code_says_so(codes, also):
    made = outcomes({CELL: stepped()})
    marked = [
        each.model_copy(update={"cells": {CELL: each.cells[CELL].model_copy(update={"code": codes[at >= 15]})}})
        for at, each in enumerate(made)
    ]
    assert follow(marked, "scalability").shifts[0].also == also


def test_a_change_of_the_cell_itself_is_named():
    made = outcomes({CELL: [1.0, 2.0]}, testbed="virtual")
    for key, each in zip(("a", "b"), made, strict=True):
        each.cells[CELL] = cell(each.cells[CELL].metrics["scalability"][0], testbed="virtual", cell=key)
    assert follow(made, "scalability").shifts[0].also == ("spec",)


def test_losses_come_before_gains_and_the_large_before_the_small():
    made = outcomes({"a": [1.0, 2.0], "b": [1.0, 0.9], "c": [1.0, 0.5], "d": [1.0, 9.0]}, testbed="virtual")
    assert [shift.label for shift in follow(made, "scalability").shifts] == ["c", "b", "d", "a"]


def test_names_of_cells_are_in_natural_order():
    made = outcomes({"x w4 100ms": [1.0], "x w4 20ms": [1.0]}, testbed="virtual")
    assert [series.label for series in follow(made, "scalability").series] == ["x w4 20ms", "x w4 100ms"]


def test_all_measured_cells_together_have_the_stated_level():
    alarms = 0
    for seed in range(60):
        cells = {f"c{number}": noisy(np.ones(24), 1000 * seed + number) for number in range(10)}
        alarms += bool(follow(outcomes(cells), "scalability").shifts)
    assert alarms <= 8  # 3 on average


def test_measured_cells_with_few_commits_are_not_judged():
    history = follow(outcomes({CELL: stepped(8, 0.1)}), "scalability")
    assert (history.shifts, [series.label for series in history.unjudged]) == ((), [CELL])


def test_a_loss_that_machines_round_differently_does_not_change():
    made = outcomes({CELL: [1.0, 1.0001, 1.2]}, metric="final_loss", testbed="virtual")
    assert [shift.at for shift in follow(made, "final_loss").shifts] == [2]


def test_a_change_from_zero_has_no_relative_size():
    (shift,) = follow(outcomes({CELL: [0.0, 1.0]}, testbed="virtual"), "scalability").shifts
    assert (shift.change, shift.interval) == (None, None)


def test_machines_get_plain_data():
    made = [*outcomes({CELL: [1.0, 2.0]}, testbed="virtual")]
    data = json.loads(json.dumps(follow(made, "scalability").to_json(), allow_nan=False))
    assert data["changes"] == [
        {
            "cell": CELL, "kind": "step", "commit": commit(1), "subject": SUBJECT.format(1),
            "date": "2026-01-02T00:00:00+00:00", "after_commit": commit(0), "until_commit": commit(1), "at": 1,
            "before": 1.0, "after": 2.0, "change": 1.0, "low": None, "high": None, "p": None, "better": True,
            "also": [],
        }
    ]  # fmt: skip
    assert [each["commit"] for each in data["commits"]] == [commit(0), commit(1)]
    assert data["cells"][0]["levels"] == [[0, 0, 1.0], [1, 1, 2.0]]
