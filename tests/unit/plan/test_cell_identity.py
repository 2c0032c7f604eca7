"""The identity of a cell, and the values it derives: its network, channels, window and names."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_relay import expand
from small_spec import GOOD, cells, edited, swept

from wanbench.harness.plan.cell import Cell
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import Size

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


def test_a_new_value_on_an_axis_keeps_the_identity_of_existing_cells():
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
    "network.buffer": ["1MB", "2MB"],
    "network.mtu": [1500, 9001],
    "network.place": ["blocked", "round-robin"],
    "network.tcp.congestion": ["reno", "cubic"],
    "network.tcp.slow_start_after_idle": [True, False],
    "comm.collective": ["direct", "gloo"],
    "comm.channels": [1, 2],
    "comm.ring_order": ["best", "ranks"],
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
def test_a_change_of_any_setting_changes_the_identity(choice, flipped):
    assert _key(choice) == _key(dict(reversed(choice.items())))
    assert _key(choice) != _key({**choice, flipped: 1 - choice[flipped]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workload.step_cv", 0.02),
        ("workload.payload_scale", 1.0),
        ("network.loss", "0%"),
        ("network.jitter", "0ms"),
        ("network.loss_burst", 0),
        ("network.tcp.congestion", "reno"),
        ("comm.collective", "direct"),
        ("comm.buckets", "25MiB"),
        ("train.optimizer", "sgd"),
        ("train.lr", 0.1),
        ("train.weight_decay", 0.0),
        ("run.window", "20 steps"),
        ("run.seed", 1),
    ],
)
def test_writing_a_default_keeps_the_identity(key, value):
    spec = Spec.from_toml(GOOD, "x.toml")
    assert [c.key for c in expand(spec.override({key: value}), "x.toml")] == [c.key for c in expand(spec, "x.toml")]


def test_the_default_of_one_optimizer_changes_the_identity_with_another():
    spec = Spec.from_toml(GOOD, "x.toml").override({"train.optimizer": "adamw"})
    keys = {value: expand(spec.override({"train.lr": value}), "x.toml")[1].key for value in (0.1, 0.001)}
    assert keys[0.001] == expand(spec, "x.toml")[1].key
    assert keys[0.1] != keys[0.001]


def test_writing_a_workloads_own_step_time_keeps_the_identity():
    named = edited(('params = 1000\ntensors = 2\nstep_time = "10ms"', "name = 'resnet50-v100'"))
    spec = Spec.from_toml(named, "x.toml")
    keys = [expand(spec.override({"workload.step_time": time}), "x.toml")[1].key for time in ("300ms", "0.3s", "200ms")]
    assert keys[0] == keys[1] == expand(spec, "x.toml")[1].key != keys[2]


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


def test_a_profile_file_is_found_beside_the_spec_and_its_folder_does_not_matter(tmp_path):
    here, there = _in_folder(tmp_path / "a"), _in_folder(tmp_path / "b" / "deep")
    assert here[1].profile.rtt("paris", "oslo").ms == 30
    assert [c.key for c in here] == [c.key for c in there]
    assert [c.slug for c in here] == [c.slug for c in there]


def test_other_values_in_a_profile_file_make_another_cell(tmp_path):
    assert _in_folder(tmp_path / "a")[1].key != _in_folder(tmp_path / "b", rtt="31")[1].key


def test_a_profile_file_is_also_found_in_the_working_folder(tmp_path, monkeypatch):
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
    assert doubled[0].law_inputs.rtt_s == pytest.approx(2 * plain[0].law_inputs.rtt_s)


def test_payload_scale_keeps_bytes_over_rate():
    full, tenth = swept(edited(("params = 1000", "params = 100_000"), ("[2]", "[2]\npayload_scale = [1.0, 0.1]")))
    a, b = full.law_inputs, tenth.law_inputs
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
    assert cell.channels == math.ceil(synchronisations * tensors / 2)


def test_ssgd_over_gloo_gets_a_channel_for_every_two_buckets():
    text = edited(
        ('params = 1000\ntensors = 2\nstep_time = "10ms"', "name = 'resnet50-v100'"),
        ("[sweep]", "[comm]\ncollective = 'gloo'\n[sweep]"),
    )
    (cell,) = swept(text)
    buckets = cell.workload.buckets(Size.parse("25MiB").bytes)
    assert len(buckets) > 2
    assert cell.channels == math.ceil(len(buckets) / 2)


def test_direct_needs_one_connection_per_pair_and_an_explicit_number_is_kept():
    assert swept()[0].channels == 1
    assert swept(GOOD + "[comm]\nchannels = 3\n")[0].channels == 3


@settings(max_examples=60, deadline=None)
@given(delay=st.integers(0, 40), period=st.integers(1, 25), window=st.integers(1, 120))
def test_the_window_covers_whole_periods_is_long_enough_and_begins_with_a_full_pipeline(delay, period, window):
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


def test_a_folder_name_describes_the_cell_and_is_one_folder():
    (cell,) = swept(edited(('rtt = ["10ms"]', '"network.rtt" = ["10ms"]\ncongestion = ["reno"]')))
    assert cell.slug == f"ssgd-w2-congestionreno-network.rtt10ms-{cell.key[:6]}"
    long = replace(cell, label="a/b" * 60)
    assert "/" not in long.slug
    assert len(long.slug) == 87


def test_a_title_shows_the_swept_values():
    (cell,) = swept(edited(('rtt = ["10ms"]', 'rtt = ["10ms"]\nloss = ["1%"]')))
    assert cell.title == "ssgd           w2 10ms loss=1%"
