"""The best algorithm, and algorithms that are equally fast."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import synthetic_rows

from wanbench.harness.analysis.best import (
    NetworkStandings,
    Standing,
    megabytes_per_step,
    networks,
    unscaled_megabytes_per_step,
)
from wanbench.harness.analysis.paired import paired_difference
from wanbench.harness.show.figures.pareto import pareto, pareto_front


def standing(name, scalability, change=None, megabytes=None, low=None, high=None):
    return Standing(
        algorithm=name, kind=name, params={}, scalability=scalability, low=low or scalability,
        high=high or scalability, step_time_s=0.3 / scalability, repeats=3,
        accuracy=None if change is None else 0.9 + change, accuracy_low=None, accuracy_high=None,
        accuracy_change=change, megabytes_per_step=megabytes,
    )  # fmt: skip


def network(*standings):
    return NetworkStandings({}, standings, ())


def test_the_fastest_is_best():
    assert network(standing("a", 0.5), standing("b", 0.9)).best.algorithm == "b"


def test_an_algorithm_that_loses_more_accuracy_than_allowed_is_not_best():
    found = network(standing("a", 0.5, 0.0), standing("b", 0.9, -0.021), standing("c", 0.8, -0.019))
    assert found.best.algorithm == "c"


def test_within_one_per_cent_the_algorithm_that_sends_least_is_best():
    found = network(standing("a", 0.995, megabytes=4.0), standing("b", 1.0, megabytes=100.0), standing("c", 0.98))
    assert found.best.algorithm == "a"
    assert [s.algorithm for s in found.as_fast] == ["a", "b"]


def test_of_equally_fast_algorithms_the_least_stale_is_best_even_if_it_sends_more():
    stale = replace(standing("dts", 1.0, megabytes=1.0), params={"delay": 20, "period": 4})
    fresh = replace(standing("delayed", 0.995, megabytes=100.0), params={"delay": 4})
    later = replace(standing("olco3", 1.0, megabytes=1.0), params={"staleness": 1, "period": 4})
    assert [one.staleness for one in (stale, fresh, later)] == [23, 4, 7]
    assert network(stale, later, fresh).best is fresh


def test_training_alone_is_never_best():
    assert network(standing("local", 1.0), standing("ssgd", 0.2)).best.algorithm == "ssgd"
    assert network(standing("local", 1.0)).best is None


def test_with_a_target_the_first_to_reach_it_is_best_and_what_never_reaches_it_is_not():
    slow = replace(standing("a", 0.5), time_to_target_s=10.0)
    fast = replace(standing("b", 0.9), time_to_target_s=20.0)
    never = standing("c", 1.0)
    assert network(fast, never, slow).best is slow


def test_times_to_a_target_that_overlap_are_equally_short():
    stale = replace(standing("a", 0.9), time_to_target_s=4.6, target_low_s=4.5, target_high_s=6.1, params={"delay": 4})
    fresh = replace(standing("b", 0.9), time_to_target_s=6.0, target_low_s=5.5, target_high_s=7.0)
    later = replace(standing("c", 0.9), time_to_target_s=6.5, target_low_s=6.2, target_high_s=7.0)
    assert network(stale, fresh, later).as_fast == (stale, fresh)
    assert network(stale, fresh, later).best is stale  # a third faster in the median


def test_repetitions_that_overlap_are_equally_fast():
    slow, fast = standing("a", 0.80, high=0.91, megabytes=1.0), standing("b", 0.95, low=0.90, megabytes=2.0)
    assert network(slow, fast).best is slow
    apart = standing("a", 0.80, high=0.89, megabytes=1.0)
    assert network(apart, fast).best is fast


def test_without_a_one_worker_cell_nothing_is_best():
    assert network(standing("a", math.nan)).best is None


def test_an_algorithm_that_failed_on_a_network_has_no_standing_there():
    rows = synthetic_rows.latency_sweep(reps=1)
    for row in rows:
        if row["algorithm"] == "ssgd" and row["rtt_ms"] == 1000.0:
            row.update(status="failed", step_time_s=None, scalability=None)
    found = networks(rows)
    assert [one.where["rtt_ms"] for one in found] == list(synthetic_rows.RTTS_MS)
    assert [len(one.standings) for one in found] == [7] * 5 + [6]


def learned(**accuracies):
    """Three repetitions per algorithm on one network, with the accuracies of seeds 1, 2 and 3."""
    rows = [row for row in synthetic_rows.latency_sweep() if row["rtt_ms"] == 100.0 and row["kind"] in accuracies]
    for row in rows:
        row["accuracy"] = accuracies[row["kind"]][row["rep"]]
    return networks(rows)[0].standings


def test_accuracies_are_compared_by_seed_so_common_effects_cancel():
    ssgd, sparse = (
        s for s in learned(ssgd=(0.90, 0.95, 0.80), sparse=(0.91, 0.96, 0.81)) if s.algorithm != "sparse-p20"
    )
    assert (sparse.paired.mean, sparse.paired.low, sparse.paired.high) == pytest.approx((0.01, 0.01, 0.01))
    assert sparse.paired.count == 3
    assert ssgd.change == 0


@pytest.mark.parametrize(
    ("seconds", "median"), [((3, 1, 2), 2), ((3, 1, None), 3), ((1, None, None), None), ((None, None, None), None)]
)
def test_repetitions_that_never_reach_the_target_are_slower_than_all_others(seconds, median):
    rows = [row for row in synthetic_rows.latency_sweep() if row["rtt_ms"] == 100.0 and row["kind"] == "ssgd"]
    for row in rows:
        row.update(accuracy=0.9, time_to_target_s=seconds[row["rep"]])
    (ssgd,) = networks(rows)[0].standings
    assert ssgd.time_to_target_s == median


def test_the_interval_follows_students_t():
    found = paired_difference({1: 0.1, 2: 0.3, 3: 0.2, 4: 0.2}, dict.fromkeys(range(1, 9), 0.0))
    assert found.mean == pytest.approx(0.2)
    assert found.high - found.mean == pytest.approx(3.18245 * 0.0816497 / 2, rel=1e-5)  # t(0.975, 3), s, sqrt(4)


def test_two_pairs_have_a_mean_without_an_interval_and_no_pair_has_neither():
    assert paired_difference({1: 0.5, 2: 0.7}, {1: 0.4, 2: 0.4}).mean == pytest.approx(0.2)
    assert paired_difference({1: 1.0}, {1: 0.0}).high == math.inf
    assert paired_difference({1: 0.5}, {2: 0.5}) is None
    assert paired_difference({1: math.nan, 2: 0.5}, {1: 0.5, 2: 0.5}) is None


def test_workloads_are_never_joined_even_if_each_algorithm_has_its_own():
    rows = [row for row in synthetic_rows.latency_sweep(reps=1) if row["rtt_ms"] in (0.0, 100.0) or row["workers"] == 1]
    for row in rows:
        if row["kind"] == "dts":
            row.update(workload="digits-cnn", accuracy=0.9)
    found = networks(rows)
    assert {(n.where["workload"], s.workload) for n in found for s in n.standings} == {
        ("digits-cnn", "digits-cnn"), ("resnet50-v100", "resnet50-v100"),
    }  # fmt: skip


def test_a_run_without_a_valid_repetition_is_an_error():
    rows = [{**row, "status": "invalid"} for row in synthetic_rows.latency_sweep(reps=1)]
    assert networks(rows) == []


def test_payload_is_per_worker_and_step():
    line = {"payload_bytes": 4 * 50 * 3_000_000, "steps_total": 50, "workers": 4}
    assert megabytes_per_step(line) == pytest.approx(3.0)
    assert megabytes_per_step({**line, "steps_total": None}) is None


def test_the_workload_itself_sends_the_bytes_divided_by_the_payload_scale():
    line = {"payload_bytes": 4 * 50 * 3_000_000, "steps_total": 50, "workers": 4, "payload_scale": 0.01}
    assert unscaled_megabytes_per_step(line) == pytest.approx(300.0)
    assert unscaled_megabytes_per_step({**line, "payload_scale": 1.0}) is None
    assert unscaled_megabytes_per_step({**line, "payload_bytes": None}) is None


def test_the_front_holds_algorithms_that_no_other_beats_in_both():
    a, b, c, d = (
        standing("a", 0.2, 0.0),
        standing("b", 0.6, -0.01),
        standing("c", 0.5, -0.02),
        standing("d", 0.6, -0.01),
    )
    assert pareto_front([a, b, c, d]) == [a, b, d]
    as_fast = standing("e", 0.601, -0.02, low=0.59)
    assert pareto_front([b, as_fast]) == [b], "a median that is faster within the repetitions is not faster"
    assert pareto_front([b, replace(as_fast, low=0.6005)]) == [b, replace(as_fast, low=0.6005)]


def test_the_title_names_the_fastest_of_the_front_on_an_axis_that_shows_differences():
    soonest = replace(standing("b", 0.95, -0.01), time_to_target_s=1.0)
    others = standing("ssgd", 0.8, 0.0), standing("c", 1.0, -0.005), standing("d", 1.0, -0.03)
    figure = pareto([network(*others, soonest)], "digits", "subject", "about", "simulated")
    title = " ".join(figure.texts[0].get_text().split())
    assert title == "c is 1.2 times as fast as SSGD; accuracy -0.50 points"
    assert 0.7 < figure.axes[0].get_xlim()[0] < 0.8
