"""Every algorithm as a cell of a sweep: planned, simulated with real gradients and with phantoms, predicted or not."""

from __future__ import annotations

import pytest
from algorithm_examples import FIRST_EXAMPLES, KINDS, REPRESENTATIVES, written
from small_spec import edited, refusal, swept

from wanbench.harness.emulators.plan import payload_share
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

VIRTUAL = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]')
DIGITS = ("params = 1000\ntensors = 2\n", 'name = "digits-cnn"\n')
NUMBERS = ("params = 1000\ntensors = 2\n", "params = 38_282\nstep_cv = 0.2\n")
FEW_NUMBERS = (NUMBERS[0], "params = 4_000\nstep_cv = 0.2\n")
SHORT = ('testbed = "virtual"\n', 'testbed = "virtual"\nwindow = "10 steps"\n')


def cell_of(kind, *changes, params=None, rtt="10ms", workers=4):
    changes = (*changes, ('10ms"]', f'{rtt}"]'), ("workers = [2]", f"workers = [{workers}]"))
    (cell,) = swept(edited(VIRTUAL, ("ssgd = {}", written(kind, params)), *changes))
    return cell


def simulated(cell, shuffle=None):
    return simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp(), shuffle=shuffle)


@pytest.mark.parametrize(("kind", "params"), FIRST_EXAMPLES, ids=str)
def test_it_learns(kind, params):
    steps = 40 if kind == "halos" else 24  # halos merges late
    until = ("[algorithms]", f"[train]\nuntil = '{steps} steps'\nlr = 0.1\n\n[algorithms]")
    workers = 4 if kind in {"sgp", "adpsgd"} else 2
    outcome = simulated(cell_of(kind, DIGITS, until, params=params, rtt="40ms", workers=workers)).outcomes[0]
    assert outcome.evaluations[-1].accuracy > 0.3  # a tenth is chance


# PowerSGD needs matrices, which a workload by numbers has not.
WITHOUT_MATRICES = [
    pytest.param(
        *example.values, marks=example.marks or (() if example.values[0] in REPRESENTATIVES else pytest.mark.long)
    )
    for example in FIRST_EXAMPLES
    if "powersgd" not in str(example.values)
]
ALIKE = [example for example in WITHOUT_MATRICES if example.values[0] not in {"osgp", "adpsgd"}]


@pytest.mark.parametrize(("kind", "params"), ALIKE, ids=str)
def test_phantoms_send_the_same_and_take_the_same_time_as_real_vectors(kind, params):
    small_batches = ("[algorithms]", "[train]\nbatch_size = 2\n\n[algorithms]")
    tables = [(DIGITS, small_batches), ((DIGITS[0], "params = 38_282\n"),)]
    workers = 3 if kind == "sgp" else 2
    cells = [cell_of(kind, *changes, SHORT, params=params, rtt="20ms", workers=workers) for changes in tables]
    runs = [simulated(cell) for cell in cells]
    for real, phantom in zip(*(run.steps.first_rank for run in runs), strict=True):
        assert phantom.messages_sent == real.messages_sent
        assert phantom.payload_bytes == pytest.approx(real.payload_bytes, rel=0.001)
        assert phantom.end_ns == pytest.approx(real.end_ns, rel=0.05)


@pytest.mark.parametrize(("kind", "params"), WITHOUT_MATRICES, ids=str)
def test_the_switching_order_of_workers_changes_no_row(kind, params):
    cell = cell_of(kind, FEW_NUMBERS, params=params, rtt="60ms")
    plain, shuffled = simulated(cell), simulated(cell, shuffle=7)
    assert plain.steps.first_rank == shuffled.steps.first_rank
    assert plain.outcomes == shuffled.outcomes
    assert sum(outcome.total.messages_sent for outcome in plain.outcomes.values()) > 5


def test_asynchronous_averaging_never_stalls_and_synchronous_gossip_waits_for_its_neighbours():
    stalls = {}
    for kind in ("adpsgd", "dpsgd", "sgp"):
        outcomes = simulated(cell_of(kind, NUMBERS, rtt="60ms")).outcomes
        stalls[kind] = sum(outcome.window.stall_ns for outcome in outcomes.values())
    assert stalls["adpsgd"] == 0
    assert stalls["dpsgd"] > 0
    assert stalls["sgp"] > stalls["dpsgd"]  # dpsgd sends before it computes


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_overlap_sgp_sends_no_faster_than_its_messages_travel(delay):
    """A model of 102 MB takes 0.85 s at 1 Gbit/s with headers: hidden behind four steps of 0.3 s, not behind two."""
    trip_s = 25_557_032 * 4 * 8 / 1e9 / payload_share(1500) + 0.005
    model = [("params = 1000\ntensors = 2\n", "params = 25_557_032\nstep_cv = 0.0\n"), ('"10ms"\n', '"300ms"\n')]
    workers = ("workers = [2]", "workers = [4]")
    (cell,) = swept(edited(VIRTUAL, ("ssgd = {}", f"osgp = {{ delay = {delay} }}"), *model, workers))
    outcome = simulated(cell).outcomes[0]
    assert (outcome.window_end_ns - outcome.window_begin_ns) / 1e9 / cell.window == pytest.approx(
        max(0.3, trip_s / delay), rel=0.03
    )


UNPREDICTED = {
    "sgp", "osgp", "dpsgd", "ecdpsgd", "adpsgd", "rps", "gradient-sharing", "async-local-sgd", "halos",
    "overlap-localsgd", "sparseloco",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_is_right_or_absent(kind):
    cell = cell_of(kind, ("params = 1000\ntensors = 2\n", "params = 400_000\ntensors = 2\nstep_cv = 0.0\n"), rtt="60ms")
    known = cell.predicted_step_time_s
    assert (known is None) == (kind in UNPREDICTED)
    if known is not None:
        outcome = simulated(cell).outcomes[0]
        measured = (outcome.window_end_ns - outcome.window_begin_ns) / 1e9 / cell.window
        assert measured == pytest.approx(known, rel=0.12)


@pytest.mark.parametrize(
    ("algorithm", "workers", "line"),
    [
        ("sgp = {}", 1, "algorithm=sgp, workers=1, rtt=10ms: algorithm 'sgp' needs at least 2 workers, got 1"),
        ("adpsgd = {}", 3,
         "algorithm=adpsgd, workers=3, rtt=10ms: algorithm 'adpsgd' needs an even number of workers, got 3"),
        ("rps = {}", 1, "algorithm=rps, workers=1, rtt=10ms: algorithm 'rps' needs at least 2 workers, got 1"),
        ("rps = { deadline = '5ms', silence = '1ms' }", 2,
         "algorithm=rps-d5ms-s1ms, workers=2, rtt=10ms: algorithm 'rps': deadline = '5ms'; "
         "expected more than 5 ms, the one-way delay of a datagram"),
        ("gradient-sharing = { block = '6B' }", 2,
         "algorithms.gradient-sharing: algorithm 'gradient-sharing': block = '6B'; expected a multiple of 4 bytes, "
         "the size of a parameter"),
        ("diloco = { period = 0 }", 2,
         "algorithms.diloco: algorithm 'diloco': period = 0; expected a whole number, 1 or more"),
        ("olco3 = { staleness = -1, period = 1 }", 2,
         "algorithms.olco3: algorithm 'olco3': staleness = -1; expected a whole number, 0 or more"),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_run_is_refused_before_anything_starts(algorithm, workers, line):
    changes = [("ssgd = {}", algorithm), ("workers = [2]", f"workers = [{workers}]")]
    assert refusal(*changes) == f"x.toml: {line}"


@pytest.mark.parametrize(
    "algorithm",
    ["diloco = { period = 5, outer_lr = 1.0, momentum = 0.0 }", "dts = { delay = 2, period = 2, form = 'model' }"],
)
def test_adamw_trains_with_algorithms_that_do_not_need_linear_steps(algorithm):
    adamw = ("[algorithms]", "[train]\nuntil = '40 steps'\noptimizer = 'adamw'\nlr = 0.005\n\n[algorithms]")
    (cell,) = swept(edited(VIRTUAL, ("ssgd = {}", algorithm), DIGITS, adamw))
    outcome = simulated(cell).outcomes[0]
    assert outcome.evaluations[-1].accuracy > 0.5
    assert outcome.replica_spread < 1e-5
