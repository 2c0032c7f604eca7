"""Machines that differ: step times by site or by rank, in cells, jobs, the one-worker cell and the step-time law."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from small_spec import cells, edited, refusal, swept

from wanbench.harness.analysis.summary import predicted_scalability
from wanbench.harness.plan.law import (
    PredictError,
    PredictInputs,
    expected_maximum,
    mean_step_s,
    one_shot_bytes,
    predict,
)
from wanbench.harness.results.row import describe

FOUR = ("workers = [2]\nrtt", "workers = [4]\nrtt")
WORLD = [('rate = "1Gbit"', 'profile = "world4"'), ('workers = [2]\nrtt = ["10ms"]', "workers = [4]")]
TIME = 'step_time = "10ms"'


def given(step_time):
    return (TIME, f"step_time = {step_time}")


def seconds(cell):
    return [time.seconds for time in cell.step_times]


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize(
    "same", ['["10ms", "0.01s", "10ms", "10000us"]', '{ default = "10ms" }', '{ tokyo = "10ms", default = "0.01s" }']
)
def test_equal_times_are_the_same_cells_and_rows_as_one_time(same):
    once, table = cells(edited(*WORLD)), cells(edited(*WORLD, given(same)))
    assert [cell.key for cell in table] == [cell.key for cell in once]
    assert [describe(cell, 0) for cell in table] == [describe(cell, 0) for cell in once]
    assert [cell.repetition(0).jobs for cell in table] == [cell.repetition(0).jobs for cell in once]


def test_each_worker_has_the_time_of_its_site_by_name_or_by_region():
    place = ('profile = "world4"', 'profile = "world4"\nplace = { tokyo = 1, oregon = 2, ohio = 1 }')
    times = given('{ us-west-2 = "10ms", tokyo = "70ms", default = "20ms" }')
    (cell,) = swept(edited(*WORLD, place, times))
    assert cell.placement == ("oregon", "oregon", "ohio", "tokyo")
    assert seconds(cell) == [0.01, 0.01, 0.02, 0.07]
    assert [job.workload["step_time"] for job in cell.repetition(0).jobs] == ["10ms", "10ms", "20ms", "70ms"]


def test_a_list_is_in_the_order_of_ranks_and_is_the_same_cell_as_a_table_of_the_same_times():
    (by_rank,) = swept(edited(*WORLD, given('["10ms", "20ms", "30ms", "40ms"]')))
    (by_site,) = swept(edited(*WORLD, given('{ ohio = "20ms", london = "30ms", tokyo = "0.04s", default = "10ms" }')))
    assert seconds(by_rank) == [0.01, 0.02, 0.03, 0.04]
    assert (by_rank.key, by_rank.base_key) == (by_site.key, by_site.base_key)
    assert by_rank.identity()["workload"]["step_time"] == ["10ms", "20ms", "30ms", "40ms"]


def test_another_time_or_order_is_another_cell():
    keys = [
        swept(edited(given(times)))[0].key
        for times in ('"20ms"', '["10ms", "20ms"]', '["20ms", "10ms"]', '["5ms", "20ms"]')
    ]
    assert len(set(keys)) == 4


def test_the_one_worker_cell_has_the_harmonic_mean():
    alone, cell = cells(edited(*WORLD, given('["300ms", "390ms", "780ms", "1710ms"]')))
    harmonic_s = 4 / (1 / 0.3 + 1 / 0.39 + 1 / 0.78 + 1 / 1.71)
    assert alone.workload.step_time_s == pytest.approx(harmonic_s, abs=1e-9)
    assert (alone.step_times, cell.base_key) == ((), alone.key)
    assert cell.law_inputs.base_step_time_s == pytest.approx(harmonic_s)


def test_a_table_serves_every_number_of_workers_and_each_set_of_machines_has_its_one_worker_cell():
    text = edited(*WORLD, ("workers = [4]", "workers = [1, 2, 4]"), given('{ oregon = "10ms", default = "20ms" }'))
    found = {cell.workers: cell for cell in swept(text)}
    assert [seconds(found[n]) for n in (1, 2, 4)] == [[], [0.01, 0.02], [0.01, 0.02, 0.02, 0.02]]
    times = {cell.key: cell.workload.step_time_s for cell in cells(text) if cell.is_baseline}
    assert [times[found[n].base_key] for n in (1, 2, 4)] == pytest.approx([0.01, 2 / 150, 4 / 250], abs=1e-9)


def test_a_table_can_be_a_value_of_an_axis():
    axis = ("[sweep]", '[sweep]\n"workload.step_time" = ["10ms", { w0 = "30ms", default = "10ms" }, ["10ms", "20ms"]]')
    assert [seconds(cell) for cell in swept(edited(axis))] == [[], [0.03, 0.01], [0.01, 0.02]]


def make(rank, world_size, seed, batch_size):
    """A model of one's own."""
    import torch

    batches = iter(lambda: (torch.zeros(batch_size, 2), torch.zeros(batch_size, 1)), None)
    return torch.nn.Linear(2, 1), batches, torch.nn.functional.mse_loss


@pytest.mark.parametrize(
    "workload", ['name = "digits-cnn"', 'name = "resnet50-v100"', 'model = "test_uneven_machines:make"']
)
def test_workloads_by_name_and_models_with_emulated_compute_take_a_list(workload):
    (cell,) = swept(edited(("params = 1000\ntensors = 2", workload), given('["10ms", "25ms"]')))
    assert seconds(cell) == [0.01, 0.025]
    assert cell.workload.step_time_s == 0.025


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            '{ oregon = "10ms", tokio = "20ms", default = "5ms" }',
            "workload.step_time.tokio: profile 'world4' has no site 'tokio' (oregon, ohio, london, tokyo); did you "
            "mean 'tokyo'?",
        ),
        (
            '{ defualt = "5ms" }',
            "workload.step_time.defualt: profile 'world4' has no site 'defualt' (oregon, ohio, london, tokyo); did you "
            "mean 'default'?",
        ),
        (
            '{ oregon = "10ms", tokyo = "20ms" }',
            "workload.step_time: no time for ohio, london; expected one for each site with a worker, or default for "
            "the others",
        ),
        (
            '{ oregon = "10ms", us-west-2 = "20ms" }',
            "workload.step_time: 'oregon' has two times, one as 'us-west-2'; expected one for each site",
        ),
        (
            '["10ms", "20ms"]',
            "workload.step_time: 2 times for workers = 4; expected one for each rank, or a table by site, such as "
            '{ tokyo = "780ms", default = "300ms" }',
        ),
        (
            '["10ms", "-20ms", "10ms", "10ms"]',
            "workload.step_time.1: '-20ms' is negative; a delay is a number and one of ns, us, ms, s, such as '80ms'",
        ),
        (
            '["10ms", "0s", "10ms", "10ms"]',
            "workload.step_time.1: expected more than zero, such as \"300ms\", got '0s'",
        ),
        (
            '{ default = "real" }',
            "workload.step_time.default: 'real' is not a quantity; a delay is a number and one of ns, us, ms, s, such "
            "as '80ms'",
        ),
        ('{ default = 10 }', "workload.step_time.default: expected a string in quotes, got 10"),
        ("10", "workload.step_time: expected a string in quotes or a list or a table, got 10"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_what_was_expected(times, expected):
    assert refusal(*WORLD, given(times)) == f"x.toml: {expected}"


def test_a_program_has_no_step_time():
    command = ("params = 1000\ntensors = 2", 'command = ["true"]')
    assert "workload.step_time: not allowed with command" in refusal(command, given('["10ms", "20ms"]'))


# ---------------------------------------------------------------- the load, and how long workers may wait


def test_workers_that_do_not_wait_send_at_their_own_pace():
    def sending(kind, times):
        """Processors for messages: those that steps of 1000 s do not need."""
        texts = [edited(("1000\n", "100_000\n"), FOUR, given(t), ("ssgd", kind)) for t in (times, '"1000s"')]
        often, seldom = (swept(text)[0].load.cpus for text in texts)
        return often - seldom

    uneven = '["100ms", "100ms", "100ms", "1s"]'
    fast, slow = sending("adpsgd", '"100ms"'), sending("adpsgd", '"1s"')
    assert sending("adpsgd", uneven) == pytest.approx((3 * fast + slow) / 4, rel=0.2)  # the law adds a wait
    assert sending("ssgd", uneven) == pytest.approx(sending("ssgd", '"1s"'), rel=0.1)


def test_the_fastest_worker_waits_at_the_end_until_the_slowest_has_made_its_steps():
    times = given('["10ms", "10s"]')
    (waits_for_none,) = swept(edited(times, ("ssgd", "adpsgd")))
    (together,) = swept(edited(times))
    assert (
        waits_for_none.repetition(0).jobs[0].timeout_s
        > waits_for_none.steps * 9.9 + waits_for_none.repetition(0).patience_s
    )
    assert together.repetition(0).jobs[0].timeout_s == 2 * together.repetition(0).patience_s


# ---------------------------------------------------------------- the law

TIMES = (0.3, 0.39, 0.78, 1.71)
LAW = PredictInputs(
    workers=4,
    step_time_s=1.71,
    rtt_s=0.2,
    rate_bytes_per_s=None,
    message_bytes=1 << 20,
    chunked=True,
    step_times_s=TIMES,
)


def by_their_clocks(times, rtt_s, delay, period, crossings, steps=4000):
    """Seconds per step of workers whose message is complete after each has heard from all, once or twice.

    Once: each sends its vector to all. Twice: each averages one piece, so it hears from all, and then all hear from it.
    """
    trips_s = rtt_s / 2 * (1 - np.eye(len(times)))  # from each to each
    clocks, arrivals, began_s = np.zeros(len(times)), {}, 0.0
    for step in range(1, steps + 1):
        clocks = clocks + times
        if step % period == 0:
            heard = clocks
            for _ in range(crossings):
                heard = (heard[:, np.newaxis] + trips_s).max(axis=0)
            arrivals[step] = heard
        clocks = np.maximum(clocks, arrivals.pop(step - delay, 0.0))
        if step == steps // 2:
            began_s = clocks.max()
    return (clocks.max() - began_s) / (steps - steps // 2)


SETS = [TIMES, (0.3, 0.3, 0.3, 0.33), (0.2, 0.4, 0.4, 0.4), (0.1, 0.5), (0.3, 0.35, 0.32)]


@pytest.mark.parametrize("times", SETS)
@pytest.mark.parametrize("rtt_s", [0.02, 0.2, 1.0])
@pytest.mark.parametrize(("delay", "period"), [(0, 1), (0, 4), (1, 1), (4, 1), (4, 4)])
def test_the_law_of_workers_that_differ_is_that_of_their_clocks(times, rtt_s, delay, period):
    law = replace(
        LAW, workers=len(times), step_time_s=max(times), step_times_s=times, rtt_s=rtt_s, delay=delay, period=period
    )
    assert predict(law).step_time_s == pytest.approx(by_their_clocks(times, rtt_s, delay, period, 2), rel=0.01)
    whole = replace(law, one_shot_bytes=law.message_bytes)
    assert predict(whole).step_time_s == pytest.approx(by_their_clocks(times, rtt_s, delay, period, 1), rel=0.01)


def test_a_synchronous_step_takes_the_slowest_worker_and_the_communication():
    assert predict(LAW).step_time_s == pytest.approx(1.71 + 0.2)
    assert predict(replace(LAW, delay=4, period=4)).step_time_s == pytest.approx(1.71)


def test_where_the_link_is_full_the_slowest_waits_for_its_own_upload_and_the_answer():
    """What the others sent has arrived while it computed: T/2 + RTT; without a lead, T + RTT/2."""
    full = replace(LAW, rate_bytes_per_s=1.5 * LAW.message_bytes)
    assert predict(full).step_time_s == pytest.approx(1.71 + 1.0 / 2 + 0.2)
    two_slow = replace(full, step_times_s=(0.3, 0.39, 1.71, 1.71))
    assert predict(two_slow).step_time_s == pytest.approx(1.71 + 1.0 + 0.1)


def test_equal_times_by_rank_are_the_law_of_one_time():
    for inputs in (LAW, replace(LAW, delay=4, period=4, step_cv=0.3), replace(LAW, step_cv=0.3, collective="gloo")):
        by_rank = replace(inputs, step_times_s=(1.71,) * 4)
        assert predict(by_rank).step_time_s == pytest.approx(predict(replace(inputs, step_times_s=())).step_time_s)


@pytest.mark.parametrize("means", [(1.0, 0.9, 0.5), (1.0, 1.0, 0.98, 0.98), (1.0, 0.01)])
def test_the_expected_slowest_of_machines_that_differ_agrees_with_random_draws(means):
    sigma = math.sqrt(math.log1p(0.3**2))
    normal = np.random.default_rng(1).standard_normal((1_000_000, len(means)))
    draws = np.array(means) * np.exp(sigma * normal - sigma**2 / 2)
    assert expected_maximum(len(means), 0.3, means) == pytest.approx(draws.max(axis=1).mean(), rel=2e-3)


def test_stragglers_among_machines_that_differ_hardly_matter():
    """The slowest machine is the slowest in nearly every step."""
    varied = PredictInputs(2, 0.2, 0.0, None, 0, step_cv=0.1, step_times_s=(0.1, 0.2))
    free = {"latency_s": 0.0, "wire_s": 0.0, "slots": None}
    assert mean_step_s(varied, **free) == pytest.approx(0.2, rel=2e-3)
    assert mean_step_s(replace(varied, step_times_s=(0.2, 0.2)), **free) > 0.2 * 1.05


def test_the_inputs_of_the_law_are_stored_and_read_and_those_of_equal_workers_are_as_before():
    assert PredictInputs.from_json(json.loads(json.dumps(LAW.to_json()))) == LAW
    assert "step_times_s" not in replace(LAW, step_times_s=()).to_json()
    for wrong in ((0.3, 1.71), (0.3, 0.3, 0.3, 1.0)):
        with pytest.raises(PredictError, match="expected one for each worker, and the largest as step_time_s"):
            replace(LAW, step_times_s=wrong)


def test_the_scalability_of_the_law_has_the_harmonic_mean_as_its_unit():
    line = {"law_inputs": LAW.to_json(), "predicted_step_time_s": 1.91, "scalability": 0.2, "step_time_s": 2.0}
    harmonic_s = statistics.harmonic_mean(TIMES)
    assert predicted_scalability(line) == pytest.approx(harmonic_s / 1.91)


def test_messages_are_sent_whole_where_the_slowest_then_waits_for_nothing():
    small = replace(LAW, message_bytes=1000, rate_bytes_per_s=1e8)
    small = replace(small, one_shot_bytes=one_shot_bytes(small))
    assert small.one_shot_bytes > 1000
    assert predict(small).step_time_s == 1.71


@pytest.mark.parametrize("collective", ["gloo", "ring"])
def test_other_collectives_have_a_prediction_only_where_the_lead_does_not_matter(collective):
    def gap(rtt, times):
        comm = ("[algorithms]", f'[comm]\ncollective = "{collective}"\n\n[algorithms]')
        tcp = ('rate = "1Gbit"', 'rate = "1Gbit"\ntcp = { slow_start_after_idle = false }')
        return swept(edited(FOUR, tcp, comm, ('["10ms"]', f'["{rtt}"]'), given(times)))[0].law_gap

    assert gap("100ms", '"500ms"') is None
    assert gap("100ms", '["100ms", "100ms", "100ms", "500ms"]') == "machines differ"
    assert gap("1ms", '["100ms", "100ms", "100ms", "500ms"]') is None
