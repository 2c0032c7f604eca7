"""[[gate.require]]: absolute and relative requirements."""

from __future__ import annotations

import pytest
from gate_rows import alone, row
from small_spec import GOOD

from wanbench.harness.errors import SpecError
from wanbench.harness.gate.claims import judge
from wanbench.harness.gate.verdict import Judgement, Verdict
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.tables import Requirement

ROWS = [
    alone(),
    *(row("ssgd", rtt=rtt, step_time_s=time) for rtt, time in (("20ms", 0.4), ("500ms", 1.0))),
    *(row("dts", rtt=rtt, step_time_s=0.3, scalability=1.0) for rtt in ("20ms", "500ms")),
]


def claims(metric="scalability", rows=ROWS, **table):
    return judge([Requirement(metric=metric, **table)], rows, "x.toml")


def refusal(**table) -> str:
    with pytest.raises(SpecError) as caught:
        claims(**table)
    return str(caught.value)


def test_a_claim_that_holds_passes():
    assert claims(where={"algorithm": "dts", "rtt": "500ms"}, min=0.9) == [
        Judgement("scalability of dts w4 500ms: at least 0.9", Verdict.UNCHANGED, "is 1")
    ]


def test_a_claim_that_is_broken_is_a_regression():
    assert claims(where={"algorithm": "ssgd", "rtt": "500ms"}, min=0.72, max=0.9) == [
        Judgement("scalability of ssgd w4 500ms: at least 0.72 and at most 0.9", Verdict.REGRESSED, "is 0.6")
    ]


def test_a_claim_applies_to_every_matching_cell():
    found = claims(where={"algorithm": "dts"}, min=0.9)
    assert [finding.cell for finding in found] == [
        "scalability of dts w4 20ms: at least 0.9",
        "scalability of dts w4 500ms: at least 0.9",
    ]


def test_a_claim_compares_two_algorithms_on_the_same_network():
    found = claims("step_time_s", where={"algorithm": "dts"}, over={"algorithm": "ssgd"}, max=0.5)
    assert [(finding.cell, finding.verdict, finding.text) for finding in found] == [
        ("step_time_s of dts w4 20ms over ssgd w4 20ms: at most 0.5", Verdict.REGRESSED, "is 0.75"),
        ("step_time_s of dts w4 500ms over ssgd w4 500ms: at most 0.5", Verdict.UNCHANGED, "is 0.3"),
    ]


def test_a_claim_compares_with_one_worker_alone():
    (found,) = claims(
        "step_time_s",
        where={"algorithm": "ssgd", "rtt": "20ms"},
        over={"algorithm": "one-worker", "workers": 1},
        max=1.4,
    )
    assert (found.verdict, found.text) == (Verdict.UNCHANGED, "is 1.333")


def test_a_metric_is_the_median_of_valid_repetitions():
    rows = [row(rep=rep, scalability=value) for rep, value in enumerate((0.5, 0.8, 0.9))]
    rows.append(row(rep=3, status="invalid", reason="late", scalability=None))
    assert claims(rows=rows, where={"algorithm": "ssgd"}, min=0.8)[0].text == "is 0.8"


def test_a_claim_about_a_failed_cell_fails():
    rows = [row(status="failed", reason="it broke", scalability=None)]
    assert claims(rows=rows, where={"algorithm": "ssgd"}, min=0.8) == [
        Judgement("scalability of ssgd w4 100ms: at least 0.8", Verdict.FAILED, "ssgd w4 100ms: failed: it broke")
    ]


def test_an_unknown_metric_is_refused_and_a_similar_one_suggested():
    assert refusal(metric="scalabilty", where={"algorithm": "dts"}, min=0.9) == (
        "x.toml: gate.require.0.metric: no metric 'scalabilty'; did you mean 'scalability'?"
    )


def test_a_claim_that_matches_no_cell_is_refused():
    assert refusal(where={"algorithm": "dts", "rtt": "1ms"}, min=0.9) == (
        "x.toml: gate.require.0.where: no cell with algorithm = 'dts', rtt = '1ms'; expected one of: "
        "dts w4 20ms, dts w4 500ms, one-worker w1, ssgd w4 20ms, ssgd w4 500ms"
    )


def test_a_claim_about_a_metric_that_a_cell_lacks_is_refused():
    assert refusal(metric="accuracy", where={"algorithm": "dts"}, min=0.9) == (
        "x.toml: gate.require.0.metric: dts w4 20ms has no accuracy: it does not apply or was not measured"
    )


def test_a_claim_whose_reference_matches_no_cell_is_refused():
    over = {"algorithm": "sparse"}
    assert refusal(metric="step_time_s", where={"algorithm": "dts", "rtt": "20ms"}, over=over, max=1) == (
        "x.toml: gate.require.0.over: expected one cell with algorithm = 'sparse' for dts w4 20ms, found 0; "
        "cells: dts w4 20ms, dts w4 500ms, one-worker w1, ssgd w4 20ms, ssgd w4 500ms"
    )


def test_a_claim_without_a_bound_is_refused_with_the_spec():
    with pytest.raises(SpecError) as caught:
        Spec.from_toml(GOOD + '\n[[gate.require]]\nmetric = "scalability"\nwhere = { algorithm = "ssgd" }\n', "x.toml")
    assert str(caught.value) == "x.toml: gate.require.0: expected min, max or both; add min = 0.9"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_meets_no_claim_also_beside_others(value):
    rows = [row("ssgd", rep, final_loss=loss) for rep, loss in enumerate([0.1, value, 0.2])]
    assert [claim.verdict for claim in claims("final_loss", rows, where={"algorithm": "ssgd"}, max=9.0)] == [
        Verdict.FAILED
    ]
