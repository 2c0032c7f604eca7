"""Pauses that can have made a window more than a little longer are a reason not to publish it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wanbench.harness.rep.fidelity import Pause, Window, describe_pauses, judge_pauses, paused_pct, pauses_of
from wanbench.workloads.process.heartbeat import PAUSED, STOPPED, SWAPPED, THROTTLED, Lost

S = 1_000_000_000
WINDOW = Window(begin_ns=10 * S, end_ns=12 * S)


def pause(begin_s: float, seconds: float, who: str = "worker 1", cause: str = PAUSED) -> Pause:
    return Pause(who, cause, round((10 + begin_s) * S), round((10 + begin_s + seconds) * S))


def test_a_window_without_pauses_has_no_reason():
    assert judge_pauses([], [WINDOW]) == []


def test_a_pause_is_named_with_its_worker_length_time_and_share():
    assert judge_pauses([pause(0.5, 0.3)], [WINDOW]) == [
        "worker 1 did not run for 0.30 s, 0.50 s after the window began: 15.0 % of the window, limit 2 %"
    ]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (STOPPED, "the program of worker 1 was stopped for"),
        (THROTTLED, "the cgroup of worker 1 was throttled for"),
        (SWAPPED, "worker 1 waited for memory for"),
    ],
)
def test_the_reason_says_what_held_a_worker_back(cause, text):
    assert judge_pauses([pause(0.5, 0.3, cause=cause)], [WINDOW])[0].startswith(text)


def test_up_to_the_limit_pauses_are_no_reason():
    assert judge_pauses([pause(0.5, 0.040)], [WINDOW]) == []
    assert len(judge_pauses([pause(0.5, 0.041)], [WINDOW])) == 1


def test_pauses_of_several_workers_at_a_time_count_once_and_those_one_after_another_add_up():
    together = [pause(0.5, 0.03, f"worker {rank}") for rank in range(8)]
    assert paused_pct(together, WINDOW) == pytest.approx(1.5)
    apart = [pause(0.1 * rank, 0.03, f"worker {rank}") for rank in range(8)]
    assert paused_pct(apart, WINDOW) == pytest.approx(12.0)
    (reason,) = judge_pauses([*apart, pause(1.5, 0.05, "the relay")], [WINDOW])
    assert reason.startswith("the relay did not run for 0.05 s, 1.50 s after the window began, and 8 more pauses: ")


def test_a_pause_after_the_window_does_not_matter():
    assert judge_pauses([pause(2.0, 5.0)], [WINDOW]) == []
    assert paused_pct([pause(1.9, 5.0)], WINDOW) == pytest.approx(5.0)


def test_a_pause_before_the_window_matters_to_workers_that_do_not_wait_for_each_other():
    early = [pause(-1.0, 0.5)]
    assert judge_pauses(early, [WINDOW]) == [
        "worker 1 did not run for 0.50 s, 1.00 s before the window began: 25.0 % of the window, limit 2 %"
    ]
    assert judge_pauses(early, [Window(WINDOW.begin_ns, WINDOW.end_ns, since_ns=WINDOW.begin_ns)]) == []


def test_a_second_window_is_judged_too_and_one_reason_is_enough():
    longer = Window(10 * S, 30 * S)
    assert judge_pauses([pause(5.0, 3.0)], [WINDOW, longer])[0].endswith("15.0 % of the window, limit 2 %")
    assert len(judge_pauses([pause(0.5, 3.0)], [WINDOW, longer])) == 1


def test_workers_relay_and_controller_are_gathered_and_a_lone_worker_has_no_relay():
    stats = SimpleNamespace(emulator="relay", pauses=((2, 3),))
    finished = {
        0: SimpleNamespace(lost=[Lost(PAUSED, 5, 6)]),
        1: SimpleNamespace(lost=[Lost(THROTTLED, 1, 2)]),
    }
    controller = [Lost(PAUSED, 3, 4), Lost(THROTTLED, 3, 4)]
    assert [(each.who, each.cause) for each in pauses_of(finished, stats, controller)] == [
        ("worker 1", THROTTLED), ("the relay", PAUSED), ("the controller", PAUSED), ("worker 0", PAUSED)
    ]  # fmt: skip
    assert [each.who for each in pauses_of({0: finished[0]}, stats, [])] == ["worker 0"]


def test_the_evidence_has_every_pause_with_its_time_in_the_window():
    assert describe_pauses([pause(0.5, 0.3)], WINDOW) == {
        "paused_pct": 15.0,
        "pauses": [{"who": "worker 1", "cause": PAUSED, "begin_s": 0.5, "seconds": 0.3}],
    }
