"""Experiments from Python by name, path or data, and the display of runs in notebooks."""

from __future__ import annotations

import pytest
import synthetic_rows
from written_run import write_run

import wanbench
from wanbench.harness.show.notebook import summary

SPEC = {
    "schema": 1,
    "name": "mine",
    "workload": {"params": 1000, "step_time": "10ms"},
    "algorithms": {"ssgd": {}},
    "sweep": {"workers": [2], "rtt": ["20ms"]},
    "run": {"testbed": "virtual"},
}


def test_an_experiment_runs_by_name_with_options(tmp_path):
    settings = {"run.window": "20 steps", "sweep.rtt": ["10ms"]}
    run = wanbench.run("smoke", testbed="virtual", settings=settings, out=tmp_path, figures=False)
    assert run.path == tmp_path / "smoke"
    assert set(run.results()["testbed"]) == {"virtual"}
    assert (run.path / "spec.toml").is_file()


def test_an_experiment_runs_from_a_dict_or_a_path(tmp_path):
    run = wanbench.run(wanbench.Spec.from_dict(SPEC), out=tmp_path, figures=False)
    assert repr(run) == f"<Run mine: 2 cells ok; simulated (virtual); {tmp_path / 'mine'}>"
    path = tmp_path / "file.toml"
    path.write_text(
        'schema = 1\nname = "file"\nalgorithms = { ssgd = {} }\nworkload = { params = 1000, step_time = "10ms" }\n'
        'sweep = { workers = [2], rtt = ["20ms"] }\n'
    )
    again = wanbench.run(path, testbed="virtual", out=tmp_path, figures=False)
    assert again.best()["step_time_s"].tolist() == run.best()["step_time_s"].tolist()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([], "nothing measured yet"),
        ([{}], "1 cell ok; emulated by relay on netns"),
        ([{}, {"cell": "b", "status": "failed"}], "1 cell ok, 1 failed; emulated by relay on netns"),
        ([{"status": "invalid"}, {}], "1 cell ok; emulated by relay on netns"),
        ([{}, {"cell": "b", "testbed": "virtual"}], "2 cells ok; emulated by relay on netns and simulated (virtual)"),
    ],
)
def test_a_summary_counts_cells_and_distinguishes_emulated_from_simulated(changes, text):
    row = {"cell": "a", "status": "ok", "testbed": "netns", "emulator": "relay"}
    assert summary([{**row, **change} for change in changes]) == text


def test_the_best_algorithms_are_shown_as_a_short_table_and_hold_all_columns(tmp_path):
    best = wanbench.Run(write_run(tmp_path / "t", synthetic_rows.latency_sweep(reps=1))).best()
    head = best.to_string().splitlines()[0].split()
    assert repr(best).splitlines()[0].split() == head[: len(repr(best).splitlines()[0].split())]
    assert {"kind", "params", "equally_fast", "low", "high"} <= set(best)
    assert best._repr_html_().count("<tr") == 1 + len(synthetic_rows.RTTS_MS)
    kind, params = best[["kind", "params"]].iloc[0]
    assert wanbench.Spec.from_dict({**SPEC, "algorithms": {kind: params}}).algorithms == {kind: params}


def test_figures_are_displayed_in_notebooks(tmp_path):
    run = wanbench.Run(write_run(tmp_path / "t", synthetic_rows.latency_sweep(reps=1)))
    picture = run.figure("scalability")
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.figure.axes
    assert run.figures()._repr_html_().count('src="data:image/png;base64,') == 2
