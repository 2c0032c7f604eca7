"""What counts in the final model when workers are lost, and what is left of the throughput."""

from __future__ import annotations

import pytest

from wanbench.harness.results.goodput import goodput, recovered, undisturbed_step_times
from wanbench.workloads.loop.job import Regrouped


def epoch(number, members, steps, *, seconds=1.0, nbytes=0):
    return Regrouped(number, members, steps, steps[0], 10**9, round((1 + seconds) * 1e9), nbytes)


def test_without_losses_every_step_counts():
    columns = recovered([[], []], 2, 100, delay=0, period=1)
    assert [*columns.values()] == [200, 0, 0.0, 0]


def test_synchronous_sgd_loses_only_the_steps_without_the_dead_worker():
    """Three workers; worker 2 dies after 40 steps and is back after 70 of 100: 40 + 30 of its steps count."""
    history = [epoch(1, [0, 1], [40, 40]), epoch(2, [0, 1, 2], [70, 70, None], seconds=2.5, nbytes=8)]
    columns = recovered([history, history], 3, 100, delay=0, period=1)
    assert columns["counted_steps"] == 100 + 100 + 40 + 30
    assert [*columns.values()][1:] == [2, 3.5, 16]


def test_a_dead_worker_takes_its_averages_in_flight_with_it():
    """D = 20, p = 4: at step 50, the averages of the first 28 steps were applied."""
    columns = recovered([[epoch(1, [0], [50])]], 2, 100, delay=20, period=4)
    assert columns["counted_steps"] == 100 + 28


def test_a_member_that_takes_the_model_of_others_loses_its_steps_since_the_last_average():
    """Period 10: worker 1 had made 37 steps, the others are beyond 40."""
    columns = recovered([[epoch(1, [0, 1], [43, 37])]], 3, 100, delay=0, period=10)
    assert columns["counted_steps"] == 100 + (40 + 57) + 40


def test_workers_that_do_not_wait_keep_all_their_steps():
    columns = recovered([[epoch(1, [0, 1], [43, 12])]], 2, 100, delay=0, period=1, alike=True)
    assert columns["counted_steps"] == 43 + 12 + 2 * (100 - 43)


def test_histories_of_workers_that_were_there_at_different_times_complete_each_other():
    """Worker 0 is lost at 30 and back at 60; worker 1 is lost at 80 for good."""
    first = [epoch(1, [1], [30]), epoch(2, [0, 1], [None, 60])]
    last = [epoch(2, [0, 1], [None, 60]), epoch(3, [0], [80])]
    columns = recovered([last, first], 2, 100, delay=0, period=1)
    assert columns["membership_changes"] == 3
    assert columns["counted_steps"] == (30 + 20 + 20) + (30 + 30 + 20)


def row(**values):
    return {
        "run": "r", "cell_key": "a", "status": "ok", "step_time_s": 0.5, "steps": 100, "workers": 4,
        "counted_steps": None, "undisturbed_key": None, **values,
    }  # fmt: skip


def test_goodput_is_the_share_of_a_run_without_losses():
    """100 steps of 0.8 s; without losses 0.5 s. 300 of 400 steps count: 300 x 0.5 / (4 x 80)."""
    times = undisturbed_step_times([row(), row(step_time_s=0.4), row(step_time_s=0.7)])
    lossy = row(cell_key="b", undisturbed_key="a", counted_steps=300, step_time_s=0.8)
    assert goodput(lossy, times) == pytest.approx(300 * 0.5 / (4 * 80))


def test_goodput_is_null_where_it_was_not_measured():
    times = undisturbed_step_times([row()])
    assert goodput(row(), times) is None
    assert goodput(row(undisturbed_key="missing", counted_steps=3), times) is None
    assert goodput(row(undisturbed_key="a", counted_steps=3, status="failed"), times) is None
