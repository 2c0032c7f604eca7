"""Repetitions of several hosts are summarised together only if the hosts are alike, or if the user wants it."""

from __future__ import annotations

import random

import pytest
import synthetic_rows
from two_hosts import FAST, SLOW, shared, without

from wanbench.harness.analysis.axes import axes_of
from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.compare import compare
from wanbench.harness.analysis.summary import AnalysisError, cells, frame, grouped, pivots, remarks

DIFFER = "gpu8-77aa01 and gpu7-3f9a1c differ by 5.0 % in the step time of one worker; the limit is 3 %"


def lines(rows):
    """Return the lines of one cell."""
    found = cells(frame(rows))
    return [line for line in found if (line["algorithm"], line["rtt_ms"]) == ("ssgd", 100.0)]


def of_ssgd(rows):
    """Return the step times of one cell."""
    return [row["step_time_s"] for row in rows if (row["algorithm"], row["rtt_ms"]) == ("ssgd", 100.0)]


def test_hosts_1_percent_apart_are_pooled():
    rows = shared(1.0)
    (line,) = lines(rows)
    assert (line["repeats"], line["hosts"], line["host"], line["on_hosts"]) == (3, None, None, (FAST, SLOW))
    assert line["step_time_s"] == sorted(of_ssgd(rows))[1]
    assert axes_of(frame(rows)) == ["rtt_ms"]
    assert remarks(rows) == []


def test_hosts_5_percent_apart_are_kept_apart_and_the_host_is_an_axis():
    rows = shared(5.0)
    assert [(line["host"], line["repeats"]) for line in lines(rows)] == [(FAST, 2), (SLOW, 1)]
    assert axes_of(frame(rows)) == ["rtt_ms", "hosts"]
    assert [pivot.fixed for pivot in pivots(frame(rows))] == [{"hosts": FAST}, {"hosts": SLOW}]
    assert remarks(rows) == [("latency-sweep", f"{DIFFER}. Hosts are kept apart (--across-hosts pools them)")]


def test_one_worker_is_summarised_by_host_too():
    def alone(rows):
        return [line for line in cells(frame(rows)) if line["workers"] == 1]

    assert [(line["host"], line["repeats"]) for line in alone(shared(5.0))] == [(FAST, 3), (SLOW, 3)]
    assert [(line["host"], line["repeats"]) for line in alone(shared(1.0))] == [(None, 6)]


def test_across_hosts_pools_all_the_same_but_each_is_still_divided_by_its_own():
    rows = shared(5.0)
    (line,) = lines(grouped(rows, across_hosts=True))
    (alike,) = lines(shared(0.0))
    assert (line["repeats"], line["on_hosts"]) == (3, (FAST, SLOW))
    assert line["scalability"] == pytest.approx(alike["scalability"])
    assert line["step_time_s"] != pytest.approx(alike["step_time_s"])
    said = [("latency-sweep", f"{DIFFER}. --across-hosts pools them all the same")]
    assert remarks(rows, across_hosts=True) == said


def test_a_host_that_is_not_known_to_be_alike_is_kept_apart():
    rows = without(shared(0.0), SLOW)
    assert [(line["host"], line["scalability"] > 0) for line in lines(rows)] == [(FAST, True), (SLOW, False)]


def test_a_part_of_a_run_is_grouped_like_the_whole():
    rows = grouped(shared(5.0))
    assert {row["hosts"] for row in grouped([row for row in rows if row["host"] == SLOW])} == {SLOW}


def test_the_hosts_of_one_run_are_not_compared_with_those_of_another():
    rows = [{**row, "run": row["host"]} for row in shared(5.0)]
    assert {row["hosts"] for row in grouped(rows)} == {None}
    assert len(compare(rows, "run").pairs) == len({row["cell"] for row in rows if row["workers"] > 1})


def test_simulated_rows_are_those_of_any_host():
    simulated = [{**row, "testbed": "virtual", "emulator": None} for row in synthetic_rows.latency_sweep(reps=1)]
    rows = [*shared(5.0), *simulated]
    assert {row["hosts"] for row in grouped(rows) if row["testbed"] == "virtual"} == {None}
    assert {row["hosts"] for row in grouped([{**row, "host": FAST} for row in simulated])} == {None}


def test_rows_of_an_earlier_version_are_summarised_as_before():
    rows = synthetic_rows.latency_sweep()
    assert axes_of(frame(rows)) == ["rtt_ms"]
    assert [(line["repeats"], line["host"], line["hosts"]) for line in lines(rows)] == [(3, None, None)]


def test_a_host_that_was_not_recorded_is_one_of_several():
    rows = [{**row, "host": None} if row["host"] == FAST else row for row in shared(5.0)]
    assert [line["hosts"] for line in lines(rows)] == [SLOW, "not recorded"]


def test_a_frame_does_not_depend_on_the_order_of_the_rows():
    for rows in (shared(1.0), shared(5.0)):
        shuffled = random.Random(1).sample(rows, len(rows))
        assert frame(rows).equals(frame(shuffled))


def test_the_best_algorithm_is_found_for_each_host():
    found = networks(shared(5.0))
    assert {network.where["hosts"] for network in found} == {FAST, SLOW}
    assert len(found) == 2 * len(synthetic_rows.RTTS_MS)
    assert {standing.host for network in found for standing in network.standings} == {FAST, SLOW}


def test_hosts_can_be_compared_even_if_they_are_alike():
    found = compare(shared(1.0), "hosts")
    assert {(pair.base, pair.head) for pair in found.pairs} == {(FAST, SLOW)}
    assert found.unpaired == 0


def test_one_host_cannot_be_compared_with_itself():
    with pytest.raises(AnalysisError, match=f"--by hosts: expected at least two values of hosts, found only {FAST}"):
        compare([row for row in shared(1.0) if row["host"] == FAST], "hosts")
