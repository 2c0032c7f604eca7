"""From a spec to its cells: which there are, in which order, and which combinations are refused."""

from __future__ import annotations

import pytest
from on_relay import expand
from small_spec import GOOD, cells, edited, refusal, swept

from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.algorithms import registry

# ---------------------------------------------------------------- which cells there are

SEVEN = ["ssgd", "delayed-d4", "delayed-d20", "sparse-p4", "sparse-p20", "dts-d4-p4", "dts-d20-p4"]


@pytest.mark.parametrize(
    ("name", "labels", "workers", "rtts"),
    [
        ("smoke", ["ssgd", "dts-d4-p2"], [2], 2),
        ("latency-sweep", SEVEN, [4], 7),
        ("latency-sweep-gloo", SEVEN, [4], 6),
        ("world4", SEVEN, [4, 8], 1),
    ],
)
def test_a_built_in_experiment_crosses_its_axes_behind_one_one_worker_cell(name, labels, workers, rtts):
    built_in = Spec.load(name)
    found = expand(built_in, name)
    assert [cell.label for cell in found] == [BASELINE] + labels * len(workers) * rtts
    assert [cell.workers for cell in found] == [1] + [n for n in workers for _ in range(rtts * len(labels))]
    given_rtts = built_in.sweep.get("rtt", [None])
    assert [cell.axes.get("rtt") for cell in found[1:]] == [rtt for _ in workers for rtt in given_rtts for _ in labels]
    assert len({cell.key for cell in found}) == len({cell.slug for cell in found}) == len(found)


def test_the_last_axis_varies_fastest_and_algorithms_vary_within_each_point():
    text = edited(
        ("ssgd = {}", "ssgd = {}\nsparse = { period = 2 }"), ("[2]", "[2, 4]"), ('["10ms"]', '["1ms", "2ms"]')
    )
    assert [(c.workers, c.axes["rtt"], c.label) for c in swept(text)] == [
        (n, rtt, label) for n in (2, 4) for rtt in ("1ms", "2ms") for label in ("ssgd", "sparse-p2")
    ]


def test_a_list_of_parameters_becomes_one_labelled_algorithm_for_each_combination():
    text = edited(("ssgd = {}", "dts = { delay = [4, 20], period = [1, 4] }"))
    assert [c.label for c in swept(text)] == ["dts-d4-p1", "dts-d4-p4", "dts-d20-p1", "dts-d20-p4"]
    cell = swept(text)[1]
    assert (cell.label, cell.kind, cell.params) == ("dts-d4-p4", "dts", {"delay": 4, "period": 4})


def test_an_algorithm_may_have_a_name_of_its_own():
    text = edited(("ssgd = {}", 'mine = { kind = "dts", delay = [1, 2], period = 1 }'))
    assert [c.label for c in swept(text)] == ["mine-d1-p1", "mine-d2-p1"]


def test_an_algorithm_of_the_users_own_is_labelled_by_the_name_in_the_spec(monkeypatch):
    text = edited(("ssgd = {}", 'mine = { kind = "pass_through:PassThrough", delay = 3 }'))
    assert [c.label for c in swept(text)] == ["mine-d3"]


def test_workers_default_to_four():
    assert [c.workers for c in swept(edited(("workers = [2]", "")))] == [4]


def test_one_worker_cell_serves_every_network_collective_and_algorithm():
    text = edited(
        ("ssgd = {}", "ssgd = {}\ndelayed = { delay = [1, 2] }"),
        (
            "workers = [2]",
            'workers = [2, 4]\ncongestion = ["reno", "cubic"]\ncollective = ["direct", "gloo"]\nchannels = [1, 2]',
        ),
    )
    found = cells(text)
    assert [c.label for c in found].count(BASELINE) == 1
    assert found[0].workers == 1
    assert len(found) == 1 + 3 * 2 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("axis", "values"),
    [("workload.step_time", '["10ms", "20ms"]'), ("payload_scale", "[0.5, 1.0]"), ("train.lr", "[0.1, 0.2]")],
)
def test_there_is_one_worker_cell_for_each_workload_and_training(axis, values):
    found = cells(edited(("workers = [2]", f'workers = [2, 4]\n"{axis}" = {values}')))
    assert [c.label for c in found].count(BASELINE) == 2


def test_one_worker_keeps_computing_what_the_others_compute_and_has_no_network():
    alone, *_ = cells()
    other = swept()[0]
    assert alone.task == other.task
    assert alone.train == other.train
    assert alone.testbed == other.testbed
    assert alone.law_inputs.message_bytes == 0
    assert alone.predicted_step_time_s == pytest.approx(0.010)


def test_until_does_not_make_the_one_worker_cell_longer():
    alone, cell = cells(edited(("[sweep]", '[train]\nuntil = "500 steps"\n[sweep]')))
    assert cell.steps == 500
    assert alone.steps == alone.window_begin + alone.window < 100


# ---------------------------------------------------------------- exclude, include, the algorithm axis


def test_exclude_drops_every_cell_that_has_all_its_values():
    text = edited(("ssgd = {}", "ssgd = {}\nsparse = { period = 2 }"), ("[2]", "[2, 4]"))
    text += '[[sweep.exclude]]\nworkers = 4\nalgorithm = "ssgd"\n'
    assert [(c.workers, c.label) for c in swept(text)] == [(2, "ssgd"), (2, "sparse-p2"), (4, "sparse-p2")]


def test_a_list_in_exclude_means_any_of_its_values():
    text = edited(("[2]", "[2, 3, 4]")) + "[[sweep.exclude]]\nworkers = [2, 4]\n"
    assert [c.workers for c in swept(text)] == [3]


def test_a_one_worker_cell_that_only_excluded_cells_need_is_not_run():
    text = edited(("workers = [2]", "payload_scale = [0.5, 1.0]\nworkers = [2]"))
    text += "[[sweep.exclude]]\npayload_scale = 0.5\n"
    assert [(c.label, c.rate_scale) for c in cells(text)] == [(BASELINE, 1.0), ("ssgd", 1.0)]


def test_include_adds_a_point_outside_the_grid():
    text = GOOD + '[[sweep.include]]\nworkers = 8\nrtt = "500ms"\nalgorithm = "ssgd"\n'
    assert [(c.workers, c.axes["rtt"]) for c in swept(text)] == [(2, "10ms"), (8, "500ms")]


def test_a_point_that_is_there_already_is_not_run_twice():
    text = GOOD + '[[sweep.include]]\nworkers = 2\nrtt = "10ms"\n'
    assert len(swept(text)) == 1


def test_the_algorithm_axis_picks_algorithms_by_label():
    text = edited(("ssgd = {}", "ssgd = {}\ndelayed = { delay = [4, 20] }"), ("[2]", '[2]\nalgorithm = ["delayed-d4"]'))
    assert [c.label for c in swept(text)] == ["delayed-d4"]


# ---------------------------------------------------------------- dotted axes


@pytest.mark.parametrize(
    ("axis", "values", "read"),
    [
        ("train.lr", [0.1, 0.2], lambda c: c.train.lr),
        ("comm.collective", ["direct", "gloo"], lambda c: c.comm.collective),
        ("workload.payload_scale", [0.5, 1.0], lambda c: c.rate_scale),
        (
            "network.tcp.slow_start_after_idle",
            [True, False],
            lambda c: c.tcp.slow_start_after_idle,
        ),
        ("algorithms.sparse.period", [2, 3], lambda c: c.algorithm().period_steps),
        ("run.seed", [1, 2], lambda c: c.seed),
    ],
)
def test_any_dotted_key_can_be_an_axis(axis, values, read):
    written = str(values).replace("True", "true").replace("False", "false")
    text = edited(("ssgd = {}", "sparse = { period = 4 }"), ("workers = [2]", f'workers = [2]\n"{axis}" = {written}'))
    found = swept(text)
    assert [c.axes[axis] for c in found] == values
    assert [read(c) for c in found] == values
    assert len({c.key for c in found}) == 2


def test_a_short_axis_is_the_dotted_key_it_stands_for():
    short = swept(edited(('rtt = ["10ms"]', 'rtt = ["10ms"]\nloss = ["0.1%"]')))
    dotted = swept(edited(('rtt = ["10ms"]', '"network.rtt" = ["10ms"]\n"network.loss" = ["0.1%"]')))
    assert [c.key for c in short] == [c.key for c in dotted]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("workers =", "worker =", "x.toml: sweep.worker: unknown axis; did you mean 'workers'?"),
        (
            "workers = [2]",
            '"train.lrr" = [0.1]',
            "x.toml (sweep): train.lrr: unknown key; did you mean 'lr'?",
        ),
        ("workers = [2]", '"trian.lr" = [0.1]', "x.toml: sweep.trian.lr: cannot be swept; did you mean 'train.lr'?"),
        (
            "workers = [2]",
            '"gate.require" = [1]',
            "x.toml: sweep.gate.require: cannot be swept; "
            "expected a key of workload, network, comm, algorithms, train, run, containers, virtual",
        ),
        (
            "workers = [2]",
            '"run.repeats" = [1, 2]',
            "x.toml: sweep.run.repeats: applies to all cells; set it in [run]",
        ),
        (
            "workers = [2]",
            '"network.rtt" = ["5ms"]',
            "x.toml: sweep: network.rtt and rtt are the same axis; keep one",
        ),
        ("[2]", "2", "x.toml: sweep.workers: expected a list with at least one value, got 2"),
        ("[2]", "[]", "x.toml: sweep.workers: expected a list with at least one value, got []"),
        ("[2]", "[0]", "x.toml: sweep.workers: expected a whole number of at least 1, got 0"),
        ("[2]", "[2.5]", "x.toml: sweep.workers: expected a whole number of at least 1, got 2.5"),
        (
            '["10ms"]',
            '["10ms", "80"]',
            "x.toml (sweep): network.rtt: '80' has no unit; "
            "a delay is a number and one of ns, us, ms, s, such as '80ms'",
        ),
        ("[2]", '[2]\nalgorithm = ["sgd"]', "x.toml: sweep.algorithm: no algorithm 'sgd'; did you mean 'ssgd'?"),
        (
            "[2]",
            "[2]\nexclude = [{ workrs = 2 }]",
            "x.toml: sweep.exclude.workrs: not an axis of this sweep; did you mean 'workers'?",
        ),
        (
            "[2]",
            "[2]\nexclude = { workers = 2 }",
            "x.toml: sweep.exclude: expected tables, such as [[sweep.exclude]] with workers = 2",
        ),
        (
            "[2]",
            "[2]\ninclude = ['a']",
            "x.toml: sweep.include: expected tables, such as [[sweep.include]] with workers = 2",
        ),
        ("[2]", "[2]\ninclude = [{ workrs = 2 }]", "x.toml: sweep.workrs: unknown axis; did you mean 'workers'?"),
        (
            "[2]",
            "[2]\nexclude = [{ workers = 2 }]",
            "x.toml: sweep: nothing is left to run; loosen sweep.exclude",
        ),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line(old, new, line):
    assert refusal((old, new)) == line


# ---------------------------------------------------------------- combinations that make no sense


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            [('rate = "1Gbit"', "profile = 'world4'")],
            "x.toml: network.rtt: goes with the uniform profile; 'world4' takes rtt_scale, rate_scale",
        ),
        (
            [('rate = "1Gbit"', "profile = 'world4'\nloss = '1%'"), ('rtt = ["10ms"]', "")],
            "x.toml: network.loss: goes with the uniform profile; 'world4' takes rtt_scale, rate_scale",
        ),
        (
            [('rate = "1Gbit"', "rtt_scale = 2.0")],
            "x.toml: network.rtt_scale: goes with a named profile; uniform takes rtt, rate, jitter, loss",
        ),
        (
            [('rtt = ["10ms"]', "")],
            "x.toml: network.rtt: the uniform profile needs an RTT; set it or sweep rtt",
        ),
        (
            [('rate = "1Gbit"', "jitter = '2ms'")],
            "x.toml: algorithm=ssgd, workers=2, rtt=10ms: w0 -> w1: jitter 2ms is above a third of the one-way delay "
            "5ms; expected at most 1.666666ms",
        ),
        (
            [('rate = "1Gbit"', "place = { w0 = 1 }")],
            "x.toml: network.place: placement has 1 workers (1), the experiment 2; expected equal",
        ),
        (
            [("ssgd = {}", "sgd = {}")],
            "x.toml: algorithms.sgd: algorithm 'sgd' is unknown; did you mean 'ssgd'? "
            f"(known: {', '.join(registry.kinds())}; your own: 'module:Class')",
        ),
        (
            [("ssgd = {}", "dts = { delai = 4, period = 1 }")],
            "x.toml: algorithms.dts: algorithm 'dts' has no parameter 'delai'; did you mean 'delay'? "
            "(it takes delay, period, form, tensors, compression)",
        ),
        (
            [("ssgd = {}", "dts = { delay = 4 }")],
            "x.toml: algorithms.dts: algorithm 'dts' needs parameter 'period' (int)",
        ),
        (
            [("ssgd = {}", "dts = { delay = [], period = 1 }")],
            "x.toml: algorithms.dts: algorithm 'dts': delay = []; expected a value or a list with at least one",
        ),
        (
            [("ssgd = {}", "dts = { delay = [4, 4], period = 1 }")],
            "x.toml: algorithms.dts: there are two 'dts-d4-p1'; rename or drop one",
        ),
        (
            [("ssgd = {}", 'a = { kind = "dts", delay = 4, period = 1 }\na-d4-p1 = { kind = "ssgd" }')],
            "x.toml: algorithms.a-d4-p1: there are two 'a-d4-p1'; rename or drop one",
        ),
        (
            [("ssgd = {}", 'one-worker = { kind = "local" }')],
            "x.toml: algorithms.one-worker: 'one-worker' is what T(1) is measured with; choose another name",
        ),
        (
            [("params = 1000", "params = 1000\nname = 'resnet50-v100'")],
            "x.toml: algorithm=ssgd, workers=2, rtt=10ms: workload: "
            "expected exactly one of name, params, model or command, got name and params",
        ),
        ([("[sweep]", "[train]\nlr = -1.0\n[sweep]")], "x.toml: train.lr = -1.0; expected a number above 0"),
        (
            [("[sweep]", "[train]\nnesterov = true\n[sweep]")],
            "x.toml: train.nesterov = True; expected momentum above 0 with it",
        ),
        (
            [('rate = "1Gbit"', "profile = 'wrld4'"), ('rtt = ["10ms"]', "")],
            "x.toml: network.profile: no profile 'wrld4'; expected one of aws, lan, paper-dts, sgp-poster, world4, "
            "world4-2025, or a .toml or .csv file; did you mean 'world4'?",
        ),
    ],
)
def test_parts_that_do_not_go_together_are_refused_in_one_line(changes, line):
    assert refusal(*changes) == line
