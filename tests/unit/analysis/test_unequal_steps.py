"""Accuracies after unequal numbers of steps are named, and never subtracted."""

from __future__ import annotations

import pytest
import synthetic_rows

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.paired import unequal_steps
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.plan import make
from wanbench.harness.results.planned import Planned
from wanbench.harness.results.store import Content
from wanbench.harness.show.best import best_text
from wanbench.harness.show.tables import as_table
from wanbench.harness.spec.experiment import Spec

WHY = "not compared: 160 steps, ssgd 60"


def trained(ssgd, sparse):
    """Rows of three seeds of both algorithms after these numbers of steps; sparse is faster and more accurate."""
    steps = {"ssgd": ssgd, "sparse-p4": sparse, "one-worker": 23}
    rows = [
        row for row in synthetic_rows.latency_sweep() if row["algorithm"] in steps and row["rtt_ms"] in {None, 100.0}
    ]
    for row in rows:
        row["steps_total"] = steps[row["algorithm"]]
        row["accuracy"] = {"ssgd": 0.90, "sparse-p4": 0.97}.get(row["algorithm"])
    return rows


@pytest.mark.parametrize(("steps", "reference"), [(60, 60), (None, 60), (60, None), (float("nan"), 60)])
def test_equal_and_unknown_numbers_of_steps_are_compared(steps, reference):
    assert unequal_steps(steps, reference) is None


def test_a_gain_from_more_steps_is_no_gain_of_the_algorithm():
    (found,) = networks(trained(60, 160))
    by_name = {s.algorithm: s for s in found.standings}
    sparse = by_name["sparse-p4"]
    assert (sparse.change, sparse.accuracy_change, sparse.paired, sparse.not_compared) == (None, None, None, WHY)
    assert by_name["ssgd"].change == 0


def test_after_equal_steps_the_difference_is_shown():
    (found,) = networks(trained(160, 160))
    assert {s.not_compared for s in found.standings} == {None}
    assert max(s.change for s in found.standings) == pytest.approx(0.07)


def test_headline_and_table_say_the_steps_of_both_and_no_points():
    rows = trained(60, 160)
    text = " ".join(best_text(rows, 200).split())
    assert f"Accuracy of sparse-p4 {WHY}." in text
    assert "+7" not in text
    assert "Not compared, because trained for another number of steps than ssgd: sparse-p4." in text
    assert WHY in as_table(rows, width=300)


SPEC = {
    "schema": 1,
    "name": "x",
    "workload": {"name": "digits-cnn"},
    "network": {"rate": "1Gbit"},
    "algorithms": {"ssgd": {}, "dts": {"delay": 20, "period": 20}},
    "sweep": {"workers": [2], "rtt": ["100ms"]},
}


@pytest.mark.parametrize(("until", "equal"), [("60 steps", False), ("160 steps", True)])
def test_the_plan_says_before_the_run_which_number_makes_steps_equal(until, equal):
    plan = make(Spec.from_dict({**SPEC, "train": {"until": until}}), "x", FixedHost())
    if equal:
        assert plan.unequal_steps is None
    else:
        assert "60 to 160 steps" in plan.unequal_steps
        assert 'train.until = "160 steps"' in plan.unequal_steps


def test_rows_of_other_plans_are_remarked_on_only_where_they_are_an_earlier_spec():
    assert "1 repetition of an earlier spec" in Content([], [{}], []).note
    assert Content([], [{}], [], planned=Planned({}, {}, {}, part=True)).note is None
