"""Rows become cells, ratios, axes and pivots."""

from __future__ import annotations

import math
import random

import pytest
import synthetic_rows

from wanbench.harness.analysis.axes import AXIS_TITLES, CONDITIONS, axes_of, axis_value
from wanbench.harness.analysis.summary import AnalysisError, cells, frame, pivots, provenance
from wanbench.harness.results.columns import SHOWN
from wanbench.netprofiles.path import EFFECTS


def only(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def summary(rows, **wanted):
    (line,) = only(cells(frame(rows)), **wanted)
    return line


def test_every_impairment_with_a_column_is_an_axis_with_a_title():
    columns = {effect.column for effect in EFFECTS} & set(SHOWN)
    assert columns <= set(CONDITIONS)
    assert set(CONDITIONS) <= AXIS_TITLES.keys()


def test_a_frame_computes_scalability_that_was_not_stored():
    rows = [{**row, "scalability": None} for row in synthetic_rows.latency_sweep(reps=1)]
    table = frame(rows)
    expected = synthetic_rows.STEP_S / table["step_time_s"]
    assert table["scalability"].to_numpy() == pytest.approx(expected.to_numpy())


def test_a_cell_is_the_median_of_its_valid_repetitions_with_their_spread():
    rows = only(synthetic_rows.latency_sweep(reps=5), algorithm="ssgd", rtt_ms=100.0)
    for row, value in zip(rows, (0.50, 0.54, 0.52, 0.90, 0.10), strict=True):
        row["scalability"] = value
    rows[3]["status"] = "invalid"
    rows[4]["status"] = "failed"
    line = summary(rows)
    assert (line["scalability"], line["scalability_min"], line["scalability_max"]) == (0.52, 0.50, 0.54)
    assert (line["status"], line["repeats"]) == ("ok", 3)


def test_a_cell_without_a_valid_repetition_keeps_its_status_and_reason_but_no_number():
    rows = only(synthetic_rows.latency_sweep(reps=2), algorithm="ssgd", rtt_ms=100.0)
    for row in rows:
        row.update(status="invalid", reason="lateness p99 4 ms")
    line = summary(rows)
    assert (line["status"], line["reason"], line["repeats"]) == ("invalid", "lateness p99 4 ms", 0)
    assert math.isnan(line["scalability"])
    assert math.isnan(line["step_time_s"])


def test_deviation_is_measured_against_the_law():
    rows = only(synthetic_rows.latency_sweep(reps=1), algorithm="sparse-p4", rtt_ms=200.0)
    rows[0]["scalability"] = 0.9 * 0.3 / rows[0]["predicted_step_time_s"]
    assert summary(rows)["deviation_pct"] == pytest.approx(-10.0)


def test_without_recorded_inputs_the_law_is_scaled_by_the_measured_single_worker():
    rows = synthetic_rows.latency_sweep(reps=1)
    for row in rows:
        del row["law_inputs"]
    line = summary(rows, algorithm="ssgd", rtt_ms=100.0)
    assert line["predicted_scalability"] == pytest.approx(0.3 / line["predicted_step_time_s"])


def test_real_compute_has_no_prediction():
    rows = only(synthetic_rows.latency_sweep(reps=1), algorithm="ssgd", rtt_ms=100.0)
    rows[0]["predicted_step_time_s"] = None
    rows[0]["law_inputs"]["step_time_s"] = 0.0
    assert math.isnan(summary(rows)["predicted_scalability"])


def test_the_order_of_execution_does_not_matter():
    rows = synthetic_rows.latency_sweep(reps=2)
    shuffled = random.Random(1).sample(rows, len(rows))
    assert frame(rows).equals(frame(shuffled))


def test_a_latency_sweep_pivots_by_rtt_with_families_in_order():
    (pivot,) = pivots(frame(synthetic_rows.latency_sweep(reps=1)))
    assert pivot.column_axis == "rtt_ms"
    assert pivot.columns == synthetic_rows.RTTS_MS
    assert pivot.algorithms == tuple(synthetic_rows.ALGORITHMS)


def test_a_profile_whose_rtt_follows_from_its_workers_pivots_by_workers():
    rows = synthetic_rows.world4(reps=1)
    for row in rows:
        if row["workers"] == 8:
            row["rtt_ms"] = 99.0
    table = frame(rows)
    assert axes_of(table) == ["workers"]
    (pivot,) = pivots(table)
    assert pivot.columns == (4, 8)


def test_channels_that_follow_from_the_algorithm_are_not_an_axis():
    rows = synthetic_rows.latency_sweep(reps=1)
    for row in rows:
        if row["kind"] == "dts":
            row["channels"] = 3
    assert axes_of(frame(rows)) == ["rtt_ms"]


def test_every_further_axis_of_the_network_makes_a_separate_pivot():
    lossy = synthetic_rows.latency_sweep(reps=1, loss_pct=1.0)
    rows = synthetic_rows.latency_sweep(reps=1) + [{**row, "cell": f"{row['cell']} lossy"} for row in lossy]
    assert [pivot.fixed for pivot in pivots(frame(rows))] == [{"loss_pct": 0.0}, {"loss_pct": 1.0}]


def test_a_choice_joins_the_labels_unless_there_were_too_many_to_tell_apart():
    rows = synthetic_rows.latency_sweep(reps=1) + synthetic_rows.latency_sweep(reps=1, collective="gloo")
    (both,) = pivots(frame([row for row in rows if row["workers"] == 1 or row["kind"] in {"ssgd", "sparse"}]))
    assert (both.fixed, both.algorithms[:2]) == ({}, ("ssgd, direct", "ssgd, gloo"))
    many = [{**row, "tcp": tcp, "cell": f"{row['cell']} {tcp}"} for row in rows for tcp in ("bbr", "cubic", "reno")]
    split = pivots(frame(many))
    assert [pivot.fixed for pivot in split[:2]] == [
        {"collective": "direct", "tcp": "bbr"},
        {"collective": "direct", "tcp": "cubic"},
    ]
    assert len(split) == 6


def test_bursts_of_loss_are_an_axis_and_rows_without_them_are_at_zero():
    """Null, as in a row of an earlier version or without bursts, is 0 packets; the algorithms keep their labels."""
    each = [row for row in synthetic_rows.latency_sweep(reps=1, loss_pct=1.0) if row["workers"] != 1]
    rows = [{**row, "loss_burst": burst, "cell": f"{row['cell']}-{burst}"} for row in each for burst in (None, 5.0)]
    table = frame(rows)
    assert axes_of(table) == ["rtt_ms", "loss_burst"]
    assert [pivot.fixed for pivot in pivots(table)] == [{"loss_burst": 0.0}, {"loss_burst": 5.0}]
    assert axis_value("loss_burst", 5.0) == "loss burst 5 packets"
    assert set(table["algorithm"]) == set(synthetic_rows.ALGORITHMS)
    assert axes_of(frame(each)) == ["rtt_ms"]


def test_sizes_of_packets_are_an_axis_and_rows_without_one_have_the_usual():
    each = [row for row in synthetic_rows.latency_sweep(reps=1) if row["workers"] != 1]
    rows = [{**row, "mtu": mtu, "cell": f"{row['cell']}-{mtu}"} for row in each for mtu in (None, 9001)]
    table = frame(rows)
    assert axes_of(table) == ["rtt_ms", "mtu"]
    assert [pivot.fixed for pivot in pivots(table)] == [{"mtu": 1500}, {"mtu": 9001}]
    assert axis_value("mtu", 9001.0) == "MTU 9001 bytes"


def test_a_run_with_only_one_worker_has_nothing_to_compare():
    with pytest.raises(AnalysisError) as caught:
        pivots(frame(synthetic_rows.one_worker()))
    assert str(caught.value) == "no cell with more than one worker has a result yet, so there is nothing to compare"


def test_an_empty_run_has_nothing_to_compare():
    with pytest.raises(AnalysisError):
        pivots(frame([]))


def test_results_of_the_virtual_testbed_are_simulated_and_others_are_emulated():
    assert provenance(["virtual", "virtual"]) == "simulated"
    assert provenance(["netns", "docker"]) == "emulated"
    assert provenance(["virtual", "netns"]) == "emulated and simulated"
