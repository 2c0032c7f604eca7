"""Which repetitions run side by side, and how long a run takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.law import sent_bytes
from wanbench.harness.plan.load import (
    BUDGET_SHARE,
    MEMORY_SHARE,
    Capacity,
    Load,
    first_that_fits,
    makespan,
    simulators,
    slots_for,
)
from wanbench.harness.spec.experiment import Spec

LOADS = st.lists(st.builds(Load, seconds=st.floats(0.1, 1000), cpus=st.floats(0.01, 20)), max_size=12)
SLOTS = st.integers(1, 8)
HOSTS = st.builds(Capacity, cores=st.integers(1, 16), memory_bytes=st.just(math.inf))
TWO_CORES = Capacity(2, math.inf)


def fits(load, running, host):
    return first_that_fits([load], running, host) is not None


@given(load=st.builds(Load, seconds=st.floats(0.1, 1000), cpus=st.floats(0, 1e6)), host=HOSTS)
def test_one_alone_always_fits(load, host):
    assert fits(load, [], host)


def test_another_fits_if_the_processors_can_run_both():
    load = Load(1.0, BUDGET_SHARE)
    assert fits(load, [load], TWO_CORES)
    assert not fits(load, [load, Load(1.0, 0.01)], TWO_CORES)


def test_another_fits_if_the_memory_holds_both():
    load, host = Load(1.0, 0.1, memory_bytes=1000 * MEMORY_SHARE), Capacity(64, 2000)
    assert fits(load, [load], host)
    assert not fits(load, [load, Load(1.0, 0.1, memory_bytes=1)], host)
    assert makespan([load] * 4, slots=4, host=host) == pytest.approx(2.0)


SIMULATION = Load(10.0, 1.0, memory_bytes=100, simulated=True)


def test_simulations_use_whole_processors_and_share_the_memory():
    host = Capacity(4, 250 / MEMORY_SHARE)
    assert fits(SIMULATION, [SIMULATION], host)
    assert not fits(SIMULATION, [SIMULATION] * 2, host)
    assert not fits(SIMULATION, [SIMULATION] * 4, Capacity(4, math.inf))
    assert not fits(SIMULATION, [Load(10.0, 1.0)], TWO_CORES)


@pytest.mark.parametrize(("jobs", "processes"), [(None, 4), (1, 1), (3, 3), (100, 4)])
def test_there_is_one_process_per_processor_unless_fewer_are_asked_for(jobs, processes):
    host = Capacity(4, math.inf)
    assert slots_for([SIMULATION] * 9, jobs, host) == processes
    assert simulators([SIMULATION] * 9, jobs, host) == processes


def test_processes_are_not_started_where_they_would_save_less_than_their_start_takes():
    short = Load(0.1, 1.0, simulated=True)
    assert simulators([short] * 10, 2, TWO_CORES) == 1
    assert simulators([short] * 100, 2, TWO_CORES) == 2
    assert simulators([SIMULATION, short], 2, TWO_CORES) == 1
    assert simulators([SIMULATION] * 2, 8, Capacity(8, math.inf)) == 2
    assert simulators([SIMULATION] * 2, 2, Capacity(2, 150 / MEMORY_SHARE)) == 1
    assert simulators([], None, TWO_CORES) == 1


@given(loads=LOADS, slots=SLOTS, host=HOSTS)
def test_a_makespan_is_between_perfect_sharing_and_one_after_the_other(loads, slots, host):
    total = sum(load.seconds for load in loads)
    longest = max((load.seconds for load in loads), default=0.0)
    seconds = makespan(loads, slots, host)
    assert seconds <= total * (1 + 1e-9)
    assert seconds >= max(longest, total / slots) * (1 - 1e-9)


@given(loads=LOADS, host=HOSTS)
def test_with_one_slot_it_takes_the_sum(loads, host):
    assert makespan(loads, 1, host) == pytest.approx(sum(load.seconds for load in loads))


@given(loads=LOADS, slots=SLOTS)
def test_a_repetition_that_needs_the_whole_host_runs_alone(loads, slots):
    hungry = [Load(load.seconds, 1000.0) for load in loads]
    assert makespan(hungry, slots, Capacity(4, math.inf)) == pytest.approx(sum(load.seconds for load in loads))


@given(seconds=st.floats(0.1, 100), count=st.integers(1, 12), slots=SLOTS)
def test_idle_equal_repetitions_run_in_full_rounds(seconds, count, slots):
    rounds = -(-count // slots)
    assert makespan([Load(seconds, 0.0)] * count, slots, Capacity(1, math.inf)) == pytest.approx(rounds * seconds)


def test_nothing_to_do_takes_no_time():
    assert makespan([], 4, TWO_CORES) == 0.0


def test_a_small_repetition_can_overtake_one_that_does_not_fit_yet():
    big, small = Load(10.0, 1.4), Load(10.0, 0.1)
    assert makespan([small, big, small], slots=2, host=TWO_CORES) == 20.0


def cell_with(**changes: object) -> Cell:
    spec = Spec.load("latency-sweep").override(
        {"sweep.rtt": ["100ms"], "algorithms": {"ssgd": {}}, **changes}  # type: ignore[dict-item]
    )
    return expand(spec, "latency-sweep")[-1]


def load(**changes: object) -> Load:
    return cell_with(**changes).load


def test_a_repetition_takes_its_steps_and_more_on_a_slow_network():
    here, far = load(), load(**{"sweep.rtt": ["1000ms"]})
    assert here.seconds > 23 * 0.3
    assert far.seconds > here.seconds + 20 * 0.9 / 2  # of a round trip, half is latency


def test_more_bytes_per_second_need_more_processor_time():
    def wire(**changes: object) -> float:
        cell = cell_with(**changes)
        return cell.load.cpus - 0.01 * cell.workers

    # In segments of equal length: the largest.
    assert wire(**{"workload.payload_scale": 0.5}) == pytest.approx(2 * wire(**{"workload.payload_scale": 0.25}), 0.01)
    assert wire(algorithms={"sparse": {"period": 20}}) < wire() / 10
    near = {"sweep.rtt": ["0ms"]}  # far away, four workers send their small messages one-shot
    assert wire(**near, **{"sweep.workers": [8]}) > 2 * wire(**near)


@pytest.mark.parametrize(
    ("rate", "rtt", "segment_bytes"),
    [
        ("10Mbit", "100ms", 1500),  # not below one packet
        ("10Gbit", "0ms", 31250),  # 0.25 ms at 1 Gbit/s
        (
            "10Gbit",
            "50ms",
            37500,
        ),  # sent in 1 ms at a third of 1 Gbit/s, in packets
        ("50Gbit", "1000ms", 69000),  # not above 64 KB
    ],
)
def test_a_fast_path_is_cheap_because_its_segments_are_large(rate, rtt, segment_bytes):
    cell = cell_with(**{"network.rate": rate, "sweep.rtt": [rtt], "workload.payload_scale": 0.1})
    sent = cell.workers * sent_bytes(cell.law_inputs, cell.workload.message_bytes)
    segments = sent / segment_bytes / cell.predicted_step_time_s  # per second
    one_packet_s, largest_s = 127.6e-6, 242.3e-6
    segment_s = one_packet_s + (largest_s - one_packet_s) * (segment_bytes - 1500) / (69000 - 1500)
    assert cell.load.cpus - 4 * 0.01 == pytest.approx(segments * segment_s, rel=0.03)


def test_at_its_peak_all_workers_send_at_their_rate():
    peak = load(**{"sweep.rtt": ["1000ms"], "workload.payload_scale": 0.1}).peak_cpus
    assert peak == pytest.approx(4 * 125e6 * 5.03e-9 + 4 * 0.01, rel=0.03)
    assert load(algorithms={"sparse": {"period": 20}}).peak_cpus == load().peak_cpus


def test_messages_in_flight_need_memory_three_times():
    """Two copies on the worker and one on its way, each of 102 MB x 0.1; a step later the next one begins."""
    extra = load(algorithms={"delayed": {"delay": 20}}, **{"workload.payload_scale": 0.1, "sweep.rtt": ["2000ms"]})
    plain = load(algorithms={"delayed": {"delay": 19}}, **{"workload.payload_scale": 0.1, "sweep.rtt": ["2000ms"]})
    assert extra.memory_bytes - plain.memory_bytes == pytest.approx(3 * 4 * 10.22e6, rel=0.01)


def test_paths_hold_no_more_than_their_rate_and_buffers():
    """1.25 MB/s for 1 ms in flight on each path; each of the eight queues holds 64 packets, more than 50 ms."""
    slow = {"workload.payload_scale": 0.1, "network.rate": "100Mbit", "sweep.rtt": ["2ms"]}
    needed = load(algorithms={"delayed": {"delay": 20}}, **slow).memory_bytes
    on_workers = 4 * ((120 << 20) + (4 + 2 * 22) * 10_222_812)
    assert needed - on_workers == pytest.approx(12 * 1.25e6 * 0.001 + 8 * max(1.25e6 * 0.05, 64 * 1500), rel=0.01)


def test_real_compute_uses_the_whole_host():
    spec = Spec.from_toml(
        'schema = 1\nname = "t"\n[workload]\nname = "digits-cnn"\nstep_time = "real"\n'
        '[algorithms]\nssgd = {}\n[sweep]\nworkers = [2]\nrtt = ["1ms"]\n',
        "x.toml",
    )
    busy = expand(spec, "x.toml")[-1].load
    assert not fits(busy, [Load(1.0, 0.1)], Capacity(1000, math.inf))


def test_one_worker_alone_costs_almost_nothing():
    alone = expand(Spec.load("latency-sweep"), "latency-sweep")[0].load
    assert alone.cpus < 0.05
    assert alone.seconds == pytest.approx((3 + 20) * 0.3, rel=0.3)


def test_a_slow_host_carries_less_of_what_it_emulates_and_as_much_of_the_rest():
    emulated, other = load(), Load(1.0, 0.7)
    slow = Capacity(2, math.inf, slowness=2.5)
    assert emulated.on(slow).cpus == pytest.approx(2.5 * emulated.cpus)
    assert emulated.on(slow).peak_cpus == pytest.approx(2.5 * emulated.peak_cpus)
    assert other.on(slow) == other


def test_netem_moves_single_packets_at_any_rate():
    at = {"sweep.rtt": ["1000ms"], "workload.payload_scale": 1.0}
    assert load(**at, **{"run.emulator": "netem"}).cpus > 5 * load(**at, **{"run.emulator": "relay"}).cpus
