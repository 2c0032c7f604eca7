"""`verify` names a row whose values cannot be true together, and what is wrong with it."""

from __future__ import annotations

import pytest
from synthetic_rows import latency_sweep

from wanbench.harness.results.verify import contradictions


@pytest.fixture
def row():
    """A repetition of ssgd on four workers: 0.3 s of computing in a step of 0.43 s."""
    return next(row for row in latency_sweep() if row["algorithm"] == "ssgd" and row["rtt_ms"] == 100.0)


def said(row, **changes) -> list[str]:
    return list(contradictions({**row, **changes}))


def test_a_row_as_measured_has_no_contradiction(row):
    assert said(row) == []
    assert said(row, status="invalid", reason="packets were late by 3 ms") == []


def test_parts_make_up_the_step(row):
    halved = row["step_time_s"] / 2
    (first, *others) = said(row, step_time_s=halved)
    assert first == f"compute, stall and overhead add up to {2 * halved:.6g} s, but the step time is {halved:.6g} s"
    assert f"compute takes 0.3 s of a step of {halved:.6g} s" in others


def test_a_row_without_parts_is_not_judged_by_them(row):
    assert said(row, compute_s=None, stall_s=None, overhead_s=None) == []


@pytest.mark.parametrize("change", [1e-3, -1e-3])
def test_a_part_that_was_changed_by_a_millisecond_is_seen(row, change):
    assert len(said(row, compute_s=row["compute_s"] + change)) == 1


@pytest.mark.parametrize(("value", "limit"), [(5.0, "1.1"), (1.2, "1.1"), (-0.5, "1.1"), (0.0, "1.1")])
def test_a_scalability_that_no_emulated_compute_can_have(row, value, limit):
    assert said(row, scalability=value) == [f"scalability {value:.3g}; the limit is {limit}"]


def test_real_compute_can_be_faster_with_less_work_but_not_by_far(row):
    real = {**row, "law_inputs": None, "predicted_step_time_s": None}
    assert said(real, scalability=1.3) == []
    assert said(real, scalability=2.5) == ["scalability 2.5; the limit is 2"]


def test_a_step_time_far_from_the_law(row):
    law_s = row["predicted_step_time_s"]
    unknown = dict.fromkeys(("compute_s", "stall_s", "overhead_s"))
    (text,) = said(row, step_time_s=7.51 * law_s, **unknown)
    assert text == (
        f"the step time of {7.51 * law_s:.6g} s is 7.51 times the {law_s:.6g} s of the step-time law; "
        "the limit is a factor of 3"
    )
    assert said(row, step_time_s=0.3 * law_s, **unknown)
    assert said(row, step_time_s=2.9 * law_s, **unknown) == []


def test_status_and_reason_agree(row):
    assert said(row, reason="late") == ["its status is ok, but it has a reason: late"]
    assert said(row, status="failed") == ["its status is failed, but it has no reason"]
    assert said(row, paused_pct=2.0) == []
    assert said(row, paused_pct=7.0) == ["its status is ok, but something did not run for 7.0 % of the window"]


def test_counts_and_testbeds_agree(row):
    assert said(row, steps=30, steps_total=20) == ["30 steps were measured, but there were only 20"]
    assert said(row, emulator=None) == ["4 workers on netns had no emulator"]
    assert said(row, testbed="virtual", emulator=None, wire_bytes=10) == ["bytes on a wire, but its testbed is virtual"]
