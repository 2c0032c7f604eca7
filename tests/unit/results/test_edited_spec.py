"""A spec that is edited between runs shows what a clean folder would show; what it had before is kept and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from on_relay import planned

from wanbench.harness.analysis.best import networks
from wanbench.harness.api import Run
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.together import measure_all
from wanbench.harness.show.best import best_row, best_sentence
from wanbench.harness.show.report.content import objections_to
from wanbench.harness.show.tables import render
from wanbench.harness.spec.experiment import Spec

TEXT = """\
schema = 1
name = "edited"
[workload]
params = 255_570
tensors = 2
step_time = "50ms"
[network]
rate = "100Mbit"
[algorithms]
ssgd = {}
dts = { delay = 4, period = 4 }
[sweep]
workers = [3]
rtt = ["100ms"]
[run]
testbed = "virtual"
repeats = 2
"""

EDITS = {
    "workload.params": [100_000, 400_000],
    "workload.tensors": [1, 4],
    "workload.step_time": ["50ms", "100ms"],
    "workload.step_cv": [0.0, 0.3],
    "network.rate": ["100Mbit", "50Mbit"],
    "network.tcp.slow_start_after_idle": [False, True],
    "comm.buckets": ["100kB", "25MiB"],
    "run.seed": [1, 7],
    "run.repeats": [1, 3],
    "sweep": [{"workers": [3], "rtt": ["100ms"], "workload.step_time": ["50ms", "100ms"]}],
    "sweep.rtt": [["100ms"], ["20ms", "100ms"], ["200ms"]],
    "sweep.workers": [[3], [2, 3]],
}
STEP = st.dictionaries(st.sampled_from(sorted(EDITS)), st.integers(0, 2), max_size=3)


def edited(spec: Spec, edits: dict[str, int]) -> Spec:
    return spec.override({key: EDITS[key][index % len(EDITS[key])] for key, index in edits.items()})


def measured(spec: Spec, out: Path) -> RunFolder:
    """As `wanbench run --no-figures`."""
    folder = RunFolder(out / spec.name)
    measure_all(planned(spec, "t"), folder, draw=False)
    return folder


def seen(folder: RunFolder) -> dict:
    """What people and programs are shown of a run; the report's parts without its figures."""
    rows = folder.rows()
    table = Run(folder).results().to_dict("records")
    found = networks(rows)
    return {
        "scalability": sorted((row["cell_key"], row["rep"], row["scalability"]) for row in table),
        # A kept cell has the folder name of the sweep that measured it first.
        "best": Run(folder).best().drop(columns="cell").to_json(),
        "table": render(rows, "table"),
        "pivot": render(rows, "pivot"),
        "report": (best_sentence(found), [best_row(network) for network in found], objections_to(folder, rows)),
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return iter(lambda: tmp_path_factory.mktemp("place"), None)


@pytest.fixture(scope="module")
def before(places):
    """Return a place where the spec was measured before its first edit."""
    here = next(places)
    measured(Spec.from_toml(TEXT, "t"), here)
    return here


@pytest.mark.long  # one edit is tested each time
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=1, max_size=2))
@example(steps=[{"run.repeats": 0}])
@example(steps=[{"sweep": 0}])
@example(steps=[{"workload.step_time": 1}, {"sweep": 0}])
def test_after_any_edits_a_run_is_what_it_is_in_a_clean_folder(places, before, steps):
    spec, out = Spec.from_toml(TEXT, "t"), next(places)
    shutil.copytree(before, out, dirs_exist_ok=True)
    for edits in steps:
        spec = edited(spec, edits)
        folder = measured(spec, out)
    assert seen(folder) == seen(measured(spec, next(places)))


def test_what_an_earlier_version_of_the_spec_measured_is_kept_and_named(tmp_path):
    (tmp_path / "t.toml").write_text(TEXT)
    assert wanbench("run", "t.toml", "--no-figures").exit_code == 0
    again = wanbench("run", "t.toml", "--no-figures", "--set", "workload.step_time=100ms")
    left_out = "6 repetitions of an earlier spec or another testbed are not shown; `wanbench results --all` shows them"
    assert left_out in again.stderr
    shown = wanbench("results", "edited")
    assert shown.stderr.splitlines() == [f"wanbench: edited: {left_out}", "edited: 6 ok"]
    everything = json.loads(wanbench("results", "edited", "--all", "--format", "json").stdout)
    labels = {row["algorithm"] for row in everything}
    assert labels == {name + old for name in ("one-worker", "ssgd", "dts-d4-p4") for old in ("", " (earlier)")}
    back = wanbench("run", "t.toml", "--no-figures")
    assert "0 to do" in back.stderr


def test_cells_that_differ_in_no_column_are_told_apart_by_their_labels(tmp_path):
    sweep = {"workers": [3], "rtt": ["100ms"], "workload.step_cv": [0.0, 0.3]}
    spec = Spec.from_toml(TEXT, "t").override({"sweep": sweep})
    rows = Run(measured(spec, tmp_path)).results()
    labels = set(rows[rows["workers"] == 3]["algorithm"])
    assert labels == {f"{name}, step_cv {cv}" for name in ("ssgd", "dts-d4-p4") for cv in ("0", "0.3")}
