"""Which repetitions run side by side, and how long a run takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.plan.load import BUDGET_SHARE, Load, fits, load_of, makespan
from wanbench.harness.spec.experiment import Spec

LOADS = st.lists(st.builds(Load, seconds=st.floats(0.1, 1000), cpus=st.floats(0.01, 20)), max_size=12)
SLOTS, CORES = st.integers(1, 8), st.integers(1, 16)


@given(load=st.builds(Load, seconds=st.floats(0.1, 1000), cpus=st.floats(0, 1e6)), cores=CORES)
def test_one_alone_always_fits(load, cores):
    assert fits(load, [], cores)


def test_another_fits_if_the_processors_can_run_both():
    load, cores = Load(1.0, BUDGET_SHARE), 2
    assert fits(load, [load], cores)
    assert not fits(load, [load, Load(1.0, 0.01)], cores)


@given(loads=LOADS, slots=SLOTS, cores=CORES)
def test_a_makespan_is_between_perfect_sharing_and_one_after_the_other(loads, slots, cores):
    total = sum(load.seconds for load in loads)
    longest = max((load.seconds for load in loads), default=0.0)
    seconds = makespan(loads, slots, cores)
    assert seconds <= total * (1 + 1e-9)
    assert seconds >= max(longest, total / slots) * (1 - 1e-9)


@given(loads=LOADS, cores=CORES)
def test_with_one_slot_it_takes_the_sum(loads, cores):
    assert makespan(loads, 1, cores) == pytest.approx(sum(load.seconds for load in loads))


@given(loads=LOADS, slots=SLOTS)
def test_a_repetition_that_needs_the_whole_host_runs_alone(loads, slots):
    hungry = [Load(load.seconds, 1000.0) for load in loads]
    assert makespan(hungry, slots, 4) == pytest.approx(sum(load.seconds for load in loads))


@given(seconds=st.floats(0.1, 100), count=st.integers(1, 12), slots=SLOTS)
def test_idle_equal_repetitions_run_in_full_rounds(seconds, count, slots):
    rounds = -(-count // slots)
    assert makespan([Load(seconds, 0.0)] * count, slots, 1) == pytest.approx(rounds * seconds)


def test_nothing_to_do_takes_no_time():
    assert makespan([], 4, 2) == 0.0


def test_a_small_repetition_can_overtake_one_that_does_not_fit_yet():
    big, small = Load(10.0, 1.4), Load(10.0, 0.1)
    assert makespan([small, big, small], slots=2, cores=2) == 20.0


def load(**changes: object) -> Load:
    spec = Spec.load("latency-sweep").override(
        {"sweep.rtt": ["100ms"], "algorithms": {"ssgd": {}}, **changes}  # type: ignore[dict-item]
    )
    return load_of(expand(spec, "latency-sweep")[-1])


def test_a_repetition_takes_its_steps_and_more_on_a_slow_network():
    here, far = load(), load(**{"sweep.rtt": ["1000ms"]})
    assert here.seconds > 23 * 0.3
    assert far.seconds > here.seconds + 20 * 0.9


def test_more_bytes_per_second_need_more_processor_time():
    assert load(**{"workload.payload_scale": 0.02}).cpus > 1.5 * load().cpus
    assert load(**{"sweep.workers": [8]}).cpus > 2 * load().cpus
    assert load(algorithms={"sparse": {"period": 20}}).cpus < load().cpus / 5


def test_real_compute_uses_the_whole_host():
    spec = Spec.from_toml(
        'schema = 1\nname = "t"\n[workload]\nname = "digits-cnn"\nstep_time = "real"\n'
        '[algorithms]\nssgd = {}\n[sweep]\nworkers = [2]\nrtt = ["1ms"]\n',
        "x.toml",
    )
    busy = load_of(expand(spec, "x.toml")[-1])
    assert not fits(busy, [Load(1.0, 0.1)], 1)


def test_one_worker_alone_costs_almost_nothing():
    alone = load_of(expand(Spec.load("latency-sweep"), "latency-sweep")[0])
    assert alone.cpus < 0.05
    assert alone.seconds == pytest.approx((3 + 20) * 0.3, rel=0.3)
