"""From a spec to its cells: their number, their order, and the combinations that are refused."""

from __future__ import annotations

import pytest
from on_relay import expand
from small_spec import GOOD, cells, edited, refusal, swept

from wanbench.harness.emulators.impairments import in_bursts
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles.path import UNIFORM_KEYS

# ---------------------------------------------------------------- the cells of a sweep

SEVEN = ["ssgd", "delayed-d4", "delayed-d20", "sparse-p4", "sparse-p20", "dts-d4-p4", "dts-d20-p4"]


@pytest.mark.parametrize(
    ("name", "labels", "workers", "rtts"),
    [
        ("smoke", ["ssgd", "dts-d4-p2"], [2], 2),
        ("latency-sweep", SEVEN, [4], 7),
        ("latency-sweep-gloo", ["ssgd"], [4], 3),
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


def test_an_algorithm_can_be_renamed():
    text = edited(("ssgd = {}", 'mine = { kind = "dts", delay = [1, 2], period = 1 }'))
    assert [c.label for c in swept(text)] == ["mine-d1-p1", "mine-d2-p1"]


def test_a_users_own_algorithm_is_labelled_by_its_name_in_the_spec(monkeypatch):
    text = edited(("ssgd = {}", 'mine = { kind = "pass_through:PassThrough", delay = 3 }'))
    assert [c.label for c in swept(text)] == ["mine-d3"]


def test_workers_default_to_four():
    assert [c.workers for c in swept(edited(("workers = [2]", "")))] == [4]


def test_all_networks_collectives_and_algorithms_share_one_one_worker_cell():
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
def test_each_workload_and_each_training_has_its_own_one_worker_cell(axis, values):
    found = cells(edited(("workers = [2]", f'workers = [2, 4]\n"{axis}" = {values}')))
    assert [c.label for c in found].count(BASELINE) == 2


def test_the_one_worker_cell_has_the_same_workload_and_no_network():
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


def test_a_sweep_of_loss_with_bursts_can_start_at_no_loss():
    found = swept(edited(('rate = "1Gbit"', "loss_burst = 5"), ("[2]", '[2]\nloss = ["0%", "1%"]')))
    links = [cell.emulated_network.links[0, 1] for cell in found]
    assert [(link.loss, in_bursts(link)) for link in links] == [(0.0, False), (0.01, True)]


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


def test_an_included_point_that_is_already_in_the_grid_runs_once():
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


def test_a_short_axis_is_an_alias_of_its_dotted_key():
    short = swept(edited(('rtt = ["10ms"]', 'rtt = ["10ms"]\nloss = ["0.1%"]')))
    dotted = swept(edited(('rtt = ["10ms"]', '"network.rtt" = ["10ms"]\n"network.loss" = ["0.1%"]')))
    assert [c.key for c in short] == [c.key for c in dotted]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "workers =",
            "workload.params =",
            'x.toml: sweep.workload: put a dotted key in quotes: "workload.KEY" = [...]',
        ),
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
            "expected a key of workload, network, comm, algorithms, train, run, containers, virtual, failures",
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
        ("[2]", "[0]", "x.toml: sweep.workers: expected a whole number from 1 to 4096, got 0"),
        ("[2]", "[2.5]", "x.toml: sweep.workers: expected a whole number from 1 to 4096, got 2.5"),
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
            "x.toml: sweep: sweep.exclude removes every cell; expected at least one left; exclude less",
        ),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line(old, new, line):
    assert refusal((old, new)) == line


# ---------------------------------------------------------------- impossible combinations


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            [('rate = "1Gbit"', "mtu = 575")],
            "x.toml: network.mtu: expected at least 576, got 575",
        ),
        (
            [('rate = "1Gbit"', "mtu = 9217")],
            "x.toml: network.mtu: expected at most 9216, got 9217",
        ),
        (
            [('rate = "1Gbit"', "mtu = 1400"), ("ssgd = {}", "rps = {}")],
            "x.toml: network.mtu: 'rps' sends datagrams of 1500 bytes; expected at least 1500",
        ),
        (
            [('rate = "1Gbit"', "profile = 'world4'")],
            "x.toml: network.rtt: only the uniform profile takes it; 'world4' takes rtt_scale, rate_scale; "
            "remove it, or leave out what sweeps it (--drop sweep.KEY)",
        ),
        (
            [('rate = "1Gbit"', "profile = 'world4'\nloss = '1%'"), ('rtt = ["10ms"]', "")],
            "x.toml: network.loss: only the uniform profile takes it; 'world4' takes rtt_scale, rate_scale; "
            "remove it, or leave out what sweeps it (--drop sweep.KEY)",
        ),
        (
            [('rate = "1Gbit"', "rtt_scale = 2.0")],
            f"x.toml: network.rtt_scale: only a named profile takes it; uniform takes {', '.join(UNIFORM_KEYS)}",
        ),
        (
            [('rtt = ["10ms"]', "")],
            "x.toml: network.rtt: the uniform profile needs an RTT; set it or sweep rtt",
        ),
        (
            [("ssgd = {}", "dts = { delay = [], period = 1 }")],
            "x.toml: algorithms.dts: algorithm 'dts': delay = []; expected a value or a list with at least one",
        ),
        (
            [("ssgd = {}", "dts = { delay = [4, 4], period = 1 }")],
            "x.toml: algorithms.dts: two algorithms are labelled 'dts-d4-p1'; rename or remove one",
        ),
        (
            [("ssgd = {}", 'a = { kind = "dts", delay = 4, period = 1 }\na-d4-p1 = { kind = "ssgd" }')],
            "x.toml: algorithms.a-d4-p1: two algorithms are labelled 'a-d4-p1'; rename or remove one",
        ),
        (
            [("ssgd = {}", 'one-worker = { kind = "local" }')],
            "x.toml: algorithms.one-worker: 'one-worker' is the name of the cell that measures T(1); "
            "choose another name",
        ),
    ],
)
def test_an_impossible_combination_is_refused_in_one_line(changes, line):
    assert refusal(*changes) == line


@pytest.mark.parametrize(
    ("changes", "where", "value"),
    [
        ([('rate = "1Gbit"', "jitter = '2ms'")], "algorithm=ssgd, workers=2, rtt=10ms: w0 -> w1: jitter", "2ms"),
        ([('rate = "1Gbit"', "place = { w0 = 1 }")], "network.place", "1 workers"),
        ([("ssgd = {}", "sgd = {}")], "algorithms.sgd", "'ssgd'"),
        ([("ssgd = {}", "dts = { delai = 4, period = 1 }")], "algorithms.dts", "'delai'"),
        ([("ssgd = {}", "dts = { delay = 4 }")], "algorithms.dts", "'period'"),
        (
            [("params = 1000", "params = 1000\nname = 'resnet50-v100'")],
            "algorithm=ssgd, workers=2, rtt=10ms: workload",
            "name and params",
        ),
        ([('["10ms"]', '["10ms", "80"]')], "network.rtt", "'80'"),
        ([("[sweep]", "[train]\nlr = -1.0\n[sweep]")], "train.lr", "-1.0"),
        ([("[sweep]", "[train]\nnesterov = true\n[sweep]")], "train.nesterov", "True"),
        ([('rate = "1Gbit"', "profile = 'wrld4'"), ('rtt = ["10ms"]', "")], "network.profile", "'wrld4'"),
    ],
)
def test_an_error_found_in_another_room_names_file_key_and_value(changes, where, value):
    message = refusal(*changes)
    assert message.removeprefix("x.toml (sweep): ").removeprefix("x.toml: ").startswith(where)
    assert message.startswith("x.toml")
    assert value in message
    assert "\n" not in message


def test_the_one_worker_cell_may_end_within_the_warm_up_of_the_learning_rate():
    learns = ('params = 1000\ntensors = 2\nstep_time = "10ms"', 'name = "digits-cnn"')
    train = ("[sweep]", '[train]\nschedule = "cosine"\nwarmup_steps = 30\n\n[sweep]')
    alone, many = cells(edited(learns, train, ("ssgd = {}", "delayed = { delay = 20 }")))
    assert alone.is_baseline
    assert alone.steps < 30 < many.steps
