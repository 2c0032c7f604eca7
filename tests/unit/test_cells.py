"""From a spec to its cells: which there are, in which order, and what makes two of them the same."""

from __future__ import annotations

import math
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cells import BASELINE, Cell, expand
from harness.errors import SpecError
from harness.spec import Spec
from netprofiles import Size

GOOD = """\
schema = 1
name = "t"

[workload]
params = 1000
tensors = 2
step_time = "10ms"

[network]
rate = "1Gbit"

[algorithms]
ssgd = {}

[sweep]
workers = [2]
rtt = ["10ms"]
"""


def cells(text: str = GOOD, where: str = "x.toml") -> list[Cell]:
    return expand(Spec.from_toml(text, where), where)


def swept(text: str = GOOD) -> list[Cell]:
    """Without the one-worker cells."""
    return [cell for cell in cells(text) if not cell.is_baseline]


def edited(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def refusal(*changes: tuple[str, str]) -> str:
    with pytest.raises(SpecError) as caught:
        cells(edited(*changes))
    return str(caught.value)


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
    assert swept(text)[1].config["algorithm"] == {
        "label": "dts-d4-p4",
        "kind": "dts",
        "params": {"delay": 4, "period": 4},
    }


def test_an_algorithm_may_have_a_name_of_its_own():
    text = edited(("ssgd = {}", 'mine = { kind = "dts", delay = [1, 2], period = 1 }'))
    assert [c.label for c in swept(text)] == ["mine-d1-p1", "mine-d2-p1"]


def test_an_algorithm_of_the_users_own_is_labelled_by_the_name_in_the_spec(monkeypatch):
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
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
    assert alone.config["workload"] == other.config["workload"]
    assert alone.config["train"] == other.config["train"]
    assert alone.config["testbed"] == other.config["testbed"]
    assert alone.law_inputs().message_bytes == 0
    assert alone.predicted_step_time_s() == pytest.approx(0.010)


def test_until_does_not_make_the_one_worker_cell_longer():
    alone, cell = cells(edited(("[sweep]", '[train]\nuntil = "500 steps"\n[sweep]')))
    assert cell.steps == 500
    assert alone.steps == alone.window_begin + alone.window < 100


# ---------------------------------------------------------------- exclude, include, the algorithm axis


def test_exclude_drops_every_cell_that_has_all_its_values():
    text = edited(("ssgd = {}", "ssgd = {}\nsparse = { period = 2 }"), ("[2]", "[2, 4]"))
    text += '[[sweep.exclude]]\nworkers = 4\nalgorithm = "ssgd"\n'
    assert [(c.workers, c.label) for c in swept(text)] == [(2, "ssgd"), (2, "sparse-p2"), (4, "sparse-p2")]


def test_a_one_worker_cell_that_only_excluded_cells_need_is_not_run():
    text = edited(("workers = [2]", "payload_scale = [0.5, 1.0]\nworkers = [2]"))
    text += "[[sweep.exclude]]\npayload_scale = 0.5\n"
    assert [(c.label, c.config["workload"]["payload_scale"]) for c in cells(text)] == [(BASELINE, 1.0), ("ssgd", 1.0)]


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
        ("train.lr", [0.1, 0.2], lambda c: c.config["train"]["lr"]),
        ("comm.collective", ["direct", "gloo"], lambda c: c.config["comm"]["collective"]),
        ("workload.payload_scale", [0.5, 1.0], lambda c: c.config["workload"]["payload_scale"]),
        (
            "network.tcp.slow_start_after_idle",
            [True, False],
            lambda c: c.config["network"]["tcp"]["slow_start_after_idle"],
        ),
        ("algorithms.sparse.period", [2, 3], lambda c: c.algorithm().period_steps),
        ("run.seed", [1, 2], lambda c: c.config["seed"]),
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
            "expected a key of workload, network, comm, algorithms, train, run",
        ),
        (
            "workers = [2]",
            '"run.repeats" = [1, 2]',
            "x.toml: sweep.run.repeats: is the same for all cells; set it in [run]",
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
            "(known: local, ssgd, delayed, sparse, dts; your own: 'module:Class')",
        ),
        (
            [("ssgd = {}", "dts = { delai = 4, period = 1 }")],
            "x.toml: algorithms.dts: algorithm 'dts' has no parameter 'delai'; did you mean 'delay'? "
            "(it takes delay, period)",
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
            "x.toml: network.profile: no profile 'wrld4'; expected one of aws, lan, paper-dts, world4, world4-2025, "
            "or a .toml or .csv file; did you mean 'world4'?",
        ),
    ],
)
def test_parts_that_do_not_go_together_are_refused_in_one_line(changes, line):
    assert refusal(*changes) == line


# ---------------------------------------------------------------- identity


def test_the_order_of_the_axes_changes_neither_identity_nor_folder():
    one = swept(edited(('rtt = ["10ms"]', 'rtt = ["10ms", "20ms"]\nloss = ["0%", "1%"]')))
    other = swept(
        edited(
            ("workers = [2]\n", ""), ('rtt = ["10ms"]', 'loss = ["0%", "1%"]\nrtt = ["10ms", "20ms"]\nworkers = [2]')
        )
    )
    assert {c.key for c in one} == {c.key for c in other}
    assert {c.slug for c in one} == {c.slug for c in other}


def test_another_value_of_an_axis_keeps_the_identity_of_the_cells_there_were():
    before = cells()
    after = cells(
        edited(("[2]", "[2, 4]"), ('["10ms"]', '["5ms", "10ms"]'), ("ssgd = {}", "sparse = { period = 4 }\nssgd = {}"))
    )
    assert {c.key for c in before} < {c.key for c in after}
    assert {c.slug for c in before} < {c.slug for c in after}


def test_repeats_name_and_description_are_not_part_of_the_identity():
    text = edited(('name = "t"', 'name = "u"\ndescription = "d"'), ("[sweep]", "[run]\nrepeats = 9\n[sweep]"))
    assert [c.key for c in cells(text)] == [c.key for c in cells()]


_VALUES = {
    "workload.params": [1000, 2000],
    "workload.tensors": [2, 4],
    "workload.step_time": ["10ms", "20ms"],
    "workload.step_cv": [0.0, 0.1],
    "workload.payload_scale": [0.5, 1.0],
    "network.rtt": ["10ms", "20ms"],
    "network.rate": ["1Gbit", "2Gbit"],
    "network.jitter": ["0ms", "1ms"],
    "network.loss": ["0%", "1%"],
    "network.place": ["blocked", "round-robin"],
    "network.tcp.congestion": ["reno", "cubic"],
    "network.tcp.slow_start_after_idle": [True, False],
    "comm.collective": ["direct", "gloo"],
    "comm.channels": [1, 2],
    "comm.buckets": ["25MiB", "1MiB"],
    "train.lr": [0.1, 0.2],
    "train.momentum": [0.0, 0.9],
    "train.until": ["100 steps", "200 steps"],
    "run.window": ["20 steps", "40 steps"],
    "run.seed": [1, 2],
    "sweep.workers": [[2], [3]],
    "algorithms.ssgd": [{}, {"kind": "local"}],
}
_CHOICES = st.fixed_dictionaries({key: st.integers(0, 1) for key in _VALUES})


def _key(choice: dict[str, int]) -> str:
    spec = Spec.from_toml(edited(('rtt = ["10ms"]', "")), "x.toml")
    found = expand(spec.override({key: _VALUES[key][index] for key, index in choice.items()}), "x.toml")
    return next(c.key for c in found if not c.is_baseline)


@settings(max_examples=60, deadline=None)
@given(choice=_CHOICES, flipped=st.sampled_from(sorted(_VALUES)))
def test_a_change_of_anything_that_matters_changes_the_identity(choice, flipped):
    assert _key(choice) == _key(dict(reversed(choice.items())))
    assert _key(choice) != _key({**choice, flipped: 1 - choice[flipped]})


# ---------------------------------------------------------------- profiles from files

PROFILE = """\
src,dst,rtt_ms,rate_mbps
paris,oslo,30,100
"""


def _in_folder(folder, rtt: str = "30") -> list[Cell]:
    folder.mkdir(parents=True)
    (folder / "nets").mkdir()
    (folder / "nets" / "two.csv").write_text(PROFILE.replace("30", rtt))
    path = folder / "x.toml"
    path.write_text(edited(('rate = "1Gbit"', ""), ('rtt = ["10ms"]', 'profile = ["nets/two.csv"]')))
    return expand(Spec.load(path), str(path))


def test_a_profile_file_is_found_beside_the_spec_and_its_place_does_not_matter(tmp_path):
    here, there = _in_folder(tmp_path / "a"), _in_folder(tmp_path / "b" / "deep")
    assert here[1].profile().rtt("paris", "oslo").ms == 30
    assert [c.key for c in here] == [c.key for c in there]
    assert [c.slug for c in here] == [c.slug for c in there]


def test_other_values_in_a_profile_file_make_another_cell(tmp_path):
    assert _in_folder(tmp_path / "a")[1].key != _in_folder(tmp_path / "b", rtt="31")[1].key


def test_a_profile_file_may_be_named_from_the_working_folder_as_well(tmp_path, monkeypatch):
    beside = _in_folder(tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "nets", tmp_path / "work" / "nets")
    monkeypatch.chdir(tmp_path / "work")
    text = edited(('rate = "1Gbit"', ""), ('rtt = ["10ms"]', 'profile = ["nets/two.csv"]'))
    assert [c.key for c in cells(text, where="smoke")] == [c.key for c in beside]


def test_a_named_profile_can_be_swept_and_scaled():
    text = edited(('rate = "1Gbit"', "rtt_scale = 2.0"), ('rtt = ["10ms"]', 'profile = ["world4", "lan"]'))
    doubled = swept(text)
    plain = swept(text.replace("rtt_scale = 2.0", ""))
    assert [c.axes["profile"] for c in doubled] == ["world4", "lan"]
    assert doubled[0].law_inputs().rtt_s == pytest.approx(2 * plain[0].law_inputs().rtt_s)


def test_payload_scale_keeps_bytes_over_rate():
    full, tenth = swept(edited(("params = 1000", "params = 100_000"), ("[2]", "[2]\npayload_scale = [1.0, 0.1]")))
    a, b = full.law_inputs(), tenth.law_inputs()
    assert b.message_bytes == pytest.approx(a.message_bytes / 10, rel=1e-3)
    assert a.message_bytes / a.rate_bytes_per_s == pytest.approx(b.message_bytes / b.rate_bytes_per_s, rel=1e-3)


# ---------------------------------------------------------------- channels and windows


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("delay", [0, 1, 4, 20])
@pytest.mark.parametrize("period", [1, 4, 20])
def test_gloo_gets_a_channel_for_every_two_operations_in_flight(delay, period, momentum):
    text = edited(
        ("ssgd = {}", f"dts = {{ delay = {delay}, period = {period} }}"),
        ("[sweep]", f"[train]\nmomentum = {momentum}\n[comm]\ncollective = 'gloo'\n[sweep]"),
    )
    (cell,) = swept(text)
    synchronisations = math.ceil((delay + 1) / period)
    tensors = 2 if momentum and period > 1 else 1
    assert cell.config["comm"]["channels"] == math.ceil(synchronisations * tensors / 2)


def test_ssgd_over_gloo_gets_a_channel_for_every_two_buckets():
    text = edited(
        ('params = 1000\ntensors = 2\nstep_time = "10ms"', "name = 'resnet50-v100'"),
        ("[sweep]", "[comm]\ncollective = 'gloo'\n[sweep]"),
    )
    (cell,) = swept(text)
    buckets = cell.workload().buckets(Size.parse("25MiB").bytes)
    assert len(buckets) > 2
    assert cell.config["comm"]["channels"] == math.ceil(len(buckets) / 2)


def test_direct_needs_one_connection_a_pair_and_an_explicit_number_is_kept():
    assert swept()[0].config["comm"]["channels"] == 1
    assert swept(GOOD + "[comm]\nchannels = 3\n")[0].config["comm"]["channels"] == 3


@settings(max_examples=60, deadline=None)
@given(delay=st.integers(0, 40), period=st.integers(1, 25), window=st.integers(1, 120))
def test_the_window_is_whole_periods_and_long_enough_and_begins_with_a_full_pipeline(delay, period, window):
    text = edited(
        ("ssgd = {}", f"dts = {{ delay = {delay}, period = {period} }}"),
        ("[sweep]", f"[run]\nwindow = '{window} steps'\n[sweep]"),
    )
    (cell,) = swept(text)
    assert cell.window % period == 0
    assert cell.window >= max(20, window, 3 * (delay + period))
    assert cell.window_begin % period == 0
    assert cell.window_begin >= delay + period
    assert cell.steps == cell.window_begin + cell.window


# ---------------------------------------------------------------- names


def test_a_folder_name_says_what_the_cell_is_and_stays_one_folder():
    (cell,) = swept(edited(('rtt = ["10ms"]', '"network.rtt" = ["10ms"]\ncongestion = ["reno"]')))
    assert cell.slug == f"ssgd-w2-congestionreno-network.rtt10ms-{cell.key[:6]}"
    long = Cell({**cell.config, "algorithm": {"label": "a/b" * 60, "kind": "ssgd", "params": {}}}, cell.axes)
    assert "/" not in long.slug
    assert len(long.slug) == 87


def test_a_title_shows_the_swept_values():
    (cell,) = swept(edited(('rtt = ["10ms"]', 'rtt = ["10ms"]\nloss = ["1%"]')))
    assert cell.title == "ssgd           w2 10ms loss=1%"
