"""The step-time law against published measurements, an independent simulation, and its own limits."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import (
    PredictError,
    PredictInputs,
    expected_maximum,
    fill_steps,
    gloo_rounds,
    predict,
    rep_duration_s,
    window_steps,
)
from wanbench.netprofiles.path import Path, Site
from wanbench.netprofiles.profile import Profile, uniform
from wanbench.netprofiles.units import Delay, Rate

# gloo all-reduce on AWS with tc on every node:
# BinhangYuan/tc_cluster_setting, results/allreduce.md, commit 21a012d.
# (nodes, one-way delay in ms, Gbit/s, MiB, measured ms)
GLOO_UNDER_TC = [
    (4, 1, 5, 128, 485),
    (4, 5, 2, 128, 1517),
    (4, 10, 1, 128, 2993),
    (4, 1, 5, 256, 959),
    (4, 5, 2, 256, 2989),
    (4, 10, 1, 256, 5909),
    (8, 1, 5, 128, 537),
    (8, 5, 2, 128, 1814),
    (8, 10, 1, 128, 3582),
    (8, 1, 5, 256, 1111),
    (8, 5, 2, 256, 3562),
    (8, 10, 1, 256, 6999),
    (16, 1, 5, 128, 612),
    (16, 5, 2, 128, 1950),
    (16, 10, 1, 128, 3873),
    (16, 1, 5, 256, 1239),
    (16, 5, 2, 256, 3861),
    (16, 10, 1, 256, 7636),
]

ROOT = pathlib.Path(__file__).resolve().parents[3]
RESNET50_BYTES = 25_557_032 * 4
BASE = PredictInputs(
    workers=4, step_time_s=0.3, rtt_s=0.1, rate_bytes_per_s=12.5e6, message_bytes=RESNET50_BYTES // 100, chunked=True
)
KINDS = {
    "ssgd": (0, 1),
    "delayed-d4": (4, 1),
    "delayed-d20": (20, 1),
    "sparse-p4": (0, 4),
    "sparse-p20": (0, 20),
    "dts-d4-p4": (4, 4),
    "dts-d20-p4": (20, 4),
}


def scalability(label: str, rtt_s: float) -> float:
    delay, period = KINDS[label]
    inputs = replace(BASE, delay=delay, period=period, rtt_s=rtt_s)
    return inputs.step_time_s / predict(inputs).step_time_s


def simulated_step_time(step_s: float, message_s: float, delay: int, period: int, at_once: int = 64) -> float:
    """The training loop by hand: compute, issue every p-th step, then wait for the message of step n - D."""
    finish: dict[int, float] = {}
    slots = [0.0] * at_once
    now, marks = 0.0, []
    cycle = period * (delay // period + 1)
    for step in range(1, 200 * cycle + 1):
        now += step_s
        if step % period == 0:
            slot = min(range(at_once), key=slots.__getitem__)
            slots[slot] = max(now, slots[slot]) + message_s
            finish[step] = slots[slot]
        now = max(now, finish.pop(step - delay, 0.0))
        if step % cycle == 0:
            marks.append(now)
    return (marks[-1] - marks[29]) / (170 * cycle)


@pytest.mark.parametrize(("nodes", "delay_ms", "gbit", "mib", "measured_ms"), GLOO_UNDER_TC)
def test_gloo_took_84_to_96_percent_of_the_predicted_time(nodes, delay_ms, gbit, mib, measured_ms):
    inputs = PredictInputs(nodes, 0.0, 2e-3 * delay_ms, gbit * 125e6, mib << 20, collective="gloo")
    assert 0.84 <= round(measured_ms / 1e3 / predict(inputs).all_reduce_s, 2) <= 0.96


@pytest.mark.parametrize(
    ("workers", "nbytes", "rounds"),
    [
        (4, 1024, 6),
        (8, 1024, 14),
        (2, 64 << 20, 32),
        (4, 32 << 20, 24),
        (4, 46 << 20, 36),
        (8, RESNET50_BYTES, 91),
    ],
)
def test_gloo_takes_the_rounds_of_its_segmented_ring(workers, nbytes, rounds):
    assert gloo_rounds(workers, nbytes) == rounds


def test_resnet50_costs_gloo_six_round_trips_at_a_hundredth_and_seventy_five_at_full_size():
    assert gloo_rounds(4, RESNET50_BYTES // 100) == 6
    assert gloo_rounds(4, RESNET50_BYTES) == 75


@pytest.mark.parametrize("workers", [2, 4, 64])
def test_direct_pays_one_round_trip_at_any_number_of_workers(workers):
    prediction = predict(replace(BASE, workers=workers, rate_bytes_per_s=None))
    assert prediction.all_reduce_s == pytest.approx(0.1)
    assert prediction.wire_s == 0


@pytest.mark.parametrize("collective", ["gloo", "direct"])
def test_one_worker_communicates_nothing(collective):
    prediction = predict(replace(BASE, workers=1, collective=collective, step_cv=0.5))
    assert prediction.all_reduce_s == 0
    assert prediction.step_time_s == BASE.step_time_s
    assert prediction.bound == "compute"


def test_stragglers_do_not_slow_an_algorithm_without_messages():
    assert predict(replace(BASE, message_bytes=0, step_cv=0.5)).step_time_s == BASE.step_time_s


@pytest.mark.parametrize("message_s", [0.01, 0.3, 0.9, 1.5, 3.1, 7.0])
@pytest.mark.parametrize(("delay", "period"), [*KINDS.values(), (5, 2), (3, 4), (8, 4)])
def test_the_law_agrees_with_the_training_loop(delay, period, message_s):
    inputs = replace(BASE, rate_bytes_per_s=None, rtt_s=message_s, delay=delay, period=period)
    simulated_s = simulated_step_time(0.3, message_s, delay, period)
    assert predict(inputs).step_time_s == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("message_s", [0.3, 1.5, 7.0])
@pytest.mark.parametrize("delay", [4, 20])
def test_with_few_channels_messages_queue_as_the_law_predicts(delay, message_s, channels):
    inputs = replace(BASE, rate_bytes_per_s=None, rtt_s=message_s / 6, delay=delay, channels=channels)
    simulated_s = simulated_step_time(0.3, message_s, delay, 1, at_once=2 * channels)
    assert predict(replace(inputs, collective="gloo")).step_time_s == pytest.approx(simulated_s, rel=1e-2)


def test_ssgd_falls_from_the_first_rtt_and_delay_is_flat_up_to_its_tolerance():
    assert scalability("ssgd", 0.1) < 0.9 * scalability("ssgd", 0.0)
    knee_s = 4 * 0.3 - predict(BASE).wire_s
    assert scalability("delayed-d4", knee_s) == pytest.approx(1.0)
    assert scalability("delayed-d4", knee_s + 0.1) < 1.0
    assert scalability("delayed-d20", 5.0) == 1.0


def test_sparse_loses_smoothly():
    values = [scalability("sparse-p4", rtt_s) for rtt_s in np.linspace(0.2, 2, 19)]
    drops = -np.diff(values)
    assert (drops > 0).all()
    assert (np.diff(drops) < 0).all()


@pytest.mark.parametrize("delay", [4, 20])
@pytest.mark.parametrize("rtt_s", [0.0, 0.5, 1.0, 2.0, 5.0, 10.0])
def test_at_equal_delay_dts_is_never_below_delayed(delay, rtt_s):
    assert scalability(f"dts-d{delay}-p4", rtt_s) >= scalability(f"delayed-d{delay}", rtt_s)


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        ({"delay": 20}, "compute"),
        ({"rtt_s": 1.0}, "latency"),
        ({"delay": 20, "rate_bytes_per_s": 1e6}, "bandwidth"),
        ({"delay": 20, "rtt_s": 0.5, "collective": "gloo"}, "channels"),
    ],
)
def test_the_prediction_names_the_limiting_resource(change, bound):
    assert predict(replace(BASE, **change)).bound == bound


def test_more_channels_free_a_serialised_delay():
    slow = replace(BASE, delay=20, rtt_s=0.5, collective="gloo", rate_bytes_per_s=None)
    assert predict(slow).step_time_s == pytest.approx(3.0 / 2)
    assert predict(replace(slow, channels=5)).step_time_s == pytest.approx(0.3)


def test_buckets_hide_all_but_the_last_one():
    inputs = replace(BASE, buckets=((500_000, 0.15), (500_000, 0.3)))
    last_s = 0.1 + 3 / 4 * 500_000 / 12.5e6
    assert predict(inputs).step_time_s == pytest.approx(0.3 + last_s)


def test_buckets_that_are_early_enough_cost_nothing():
    assert predict(replace(BASE, buckets=((1000, 0.1),))).step_time_s == 0.3


def test_buckets_share_one_wire():
    inputs = replace(BASE, rtt_s=0.0, buckets=((1_000_000, 0.25), (1_000_000, 0.3)))
    assert predict(inputs).step_time_s == pytest.approx(0.25 + 2 * 0.12)
    assert predict(inputs).bound == "bandwidth"


def test_gloo_runs_two_buckets_per_channel():
    buckets = tuple((1000, 0.3) for _ in range(6))
    one = replace(BASE, collective="gloo", rate_bytes_per_s=None, buckets=buckets)
    assert predict(one).step_time_s == pytest.approx(0.3 + 3 * 0.6)
    assert predict(one).bound == "channels"
    assert predict(replace(one, channels=3)).step_time_s == pytest.approx(0.3 + 0.6)


def test_the_expected_maximum_agrees_with_random_draws():
    sigma2 = np.log1p(0.3**2)
    draws = np.random.default_rng(1).lognormal(-sigma2 / 2, np.sqrt(sigma2), (200_000, 8))
    assert expected_maximum(8, 0.3) == pytest.approx(draws.max(axis=1).mean(), rel=2e-3)


def test_a_period_averages_stragglers_away_and_a_delay_absorbs_them():
    noisy = replace(BASE, rtt_s=0.0, rate_bytes_per_s=None, step_cv=0.2)
    every, sparse, delayed = (
        predict(replace(noisy, **change)).step_time_s for change in ({}, {"period": 16}, {"delay": 20})
    )
    assert every == pytest.approx(0.3 * expected_maximum(4, 0.2))
    assert 0.3 < sparse < 0.3 * expected_maximum(4, 0.05)
    assert delayed == pytest.approx(0.3, rel=0.001)


@pytest.mark.parametrize(("delay", "period"), KINDS.values())
@pytest.mark.parametrize("at_least", [1, 20, 50])
def test_a_window_is_long_enough_and_covers_whole_periods_and_stall_cycles(delay, period, at_least):
    steps = window_steps(delay, period, at_least)
    assert steps >= max(at_least, 20, 3 * (delay + period))
    assert steps % period == 0
    assert steps % (period * (delay // period + 1)) == 0


def test_windows_of_the_headline_algorithms_are_the_shortest_allowed():
    assert [window_steps(d, p) for d, p in KINDS.values()] == [20, 20, 63, 20, 60, 24, 72]


def test_the_window_begins_after_the_first_average_arrives():
    assert [fill_steps(d, p) for d, p in KINDS.values()] == [3, 5, 21, 4, 20, 8, 24]


def test_a_rep_takes_its_steps_and_the_time_to_drain():
    inputs = replace(BASE, delay=4, rate_bytes_per_s=None)
    assert rep_duration_s(inputs, window=20) == pytest.approx(25 * 0.3 + 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"delay": -1}, "delay: expected at least 0, got -1"),
        ({"rtt_s": float("nan")}, "rtt_s: expected a finite number of at least 0, got nan"),
        ({"rate_bytes_per_s": 0.0}, "rate_bytes_per_s: expected more than 0 or None, got 0.0"),
        (
            {"collective": "nccl"},
            "collective: expected one of 'gloo', 'direct', 'ring', 'hierarchical', got 'nccl'",
        ),
        (
            {"delay": 4, "buckets": ((1, 0.0),)},
            "buckets: only a synchronous step (delay 0, period 1) is cut into buckets, got delay 4, period 1",
        ),
    ],
)
def test_inputs_outside_the_law_are_refused(change, message):
    with pytest.raises(PredictError) as caught:
        replace(BASE, **change)
    assert str(caught.value) == message


def test_inputs_survive_json():
    inputs = replace(BASE, buckets=((500_000, 0.15), (500_000, 0.3)), step_cv=0.02)
    assert PredictInputs.from_json(json.loads(json.dumps(inputs.to_json()))) == inputs
    with pytest.raises(PredictError, match=r"^law_inputs: unknown field 'rtt_ms'$"):
        PredictInputs.from_json({**inputs.to_json(), "rtt_ms": 1})


def test_importing_the_law_loads_neither_pandas_nor_torch():
    heavy = {"numpy", "pandas", "matplotlib", "torch"}
    code = f"import sys, wanbench.harness.plan.law; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        == "[]\n"
    )


def test_a_median_over_steps_would_hide_every_synchronisation():
    """The reason that step time is the window divided by its steps: with p > 1 the median step does not synchronise."""
    steps = [0.3] * 3 + [0.3 + 1.0]
    assert statistics.median(steps * 5) == 0.3
    law = predict(replace(BASE, period=4, rtt_s=1.0, rate_bytes_per_s=None)).step_time_s
    assert law == pytest.approx(statistics.mean(steps * 5))


def profile_of(one_way_ms: dict[tuple[str, str], float], sites: tuple[Site, ...], mbit: float | None = None) -> Profile:
    rate = None if mbit is None else Rate.from_mbit(mbit)
    paths = {(a, b): Path(a, b, Delay.from_ms(ms), rate=rate) for (a, b), ms in one_way_ms.items()}
    return Profile("test", "", sites, paths)


THREE = {("a", "b"): 10, ("b", "a"): 20, ("a", "c"): 30, ("c", "a"): 40, ("b", "c"): 5, ("c", "b"): 6}


def test_a_uniform_profile_has_its_own_rtt_and_rate():
    network = uniform(4, Delay.from_ms(80), Rate.from_mbit(100))
    for collective in ("gloo", "direct"):
        rtt_s, rate = effective_conditions(network, ["w0", "w1", "w2", "w3"], collective)
        assert rtt_s == pytest.approx(0.08)
        assert rate == pytest.approx(12.5e6)


def test_direct_waits_for_the_worst_chunk_owner():
    network = profile_of(THREE, (Site("a"), Site("b"), Site("c")))
    rtt_s, rate = effective_conditions(network, ["a", "b", "c"])
    assert rtt_s == pytest.approx(0.040 + 0.030)
    assert rate is None


def test_the_ring_only_sees_its_neighbours():
    square = {(x, y): 10 for x in "abcd" for y in "abcd" if x != y} | {("a", "c"): 100, ("c", "a"): 100}
    network = profile_of(square, tuple(Site(name) for name in "abcd"))
    assert effective_conditions(network, list("abcd"), "gloo")[0] == pytest.approx(0.020)
    assert effective_conditions(network, list("acbd"), "gloo")[0] == pytest.approx(0.200)


def test_workers_of_a_site_share_its_up_rate():
    sites = (Site("a", up=Rate.from_mbit(100)), Site("b"))
    network = profile_of({("a", "b"): 10, ("b", "a"): 10}, sites)
    # Direct: 2 x 2 chunks leave site a; one worker sends 3. Ring: one hop leaves the site.
    assert effective_conditions(network, ["a", "a", "b", "b"], "direct")[1] == pytest.approx(12.5e6 / (4 / 3))
    assert effective_conditions(network, ["a", "a", "b", "b"], "gloo")[1] == pytest.approx(12.5e6)
    assert effective_conditions(network, ["a", "b", "a", "b"], "gloo")[1] == pytest.approx(12.5e6 / 2)


def test_a_path_is_shared_by_the_workers_at_its_ends():
    network = profile_of({("a", "b"): 10, ("b", "a"): 10}, (Site("a"), Site("b")), mbit=80)
    assert effective_conditions(network, ["a", "b"])[1] == pytest.approx(10e6)
    assert effective_conditions(network, ["a", "a", "b", "b"])[1] == pytest.approx(10e6 * 3 / 4)


def test_workers_of_one_site_use_its_local_link():
    network = Profile("one", "", (Site("a", up=Rate.from_mbit(1), local_rtt=Delay.from_ms(2)),), {})
    assert effective_conditions(network, ["a", "a"]) == (pytest.approx(0.002), None)


def test_one_worker_has_no_network():
    assert effective_conditions(uniform(1, Delay.from_ms(80)), ["w0"]) == (0.0, None)


def test_a_thousand_equal_sites_cost_no_more_than_a_few():
    network = uniform(1024, Delay.from_ms(80), Rate.from_mbit(100))
    rtt_s, rate = effective_conditions(network, [f"w{i}" for i in range(1024)])
    assert (rtt_s, rate) == (pytest.approx(0.08), pytest.approx(12.5e6))
