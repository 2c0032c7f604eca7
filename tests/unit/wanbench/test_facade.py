"""`import wanbench`: every public name, and nothing is loaded before it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_rows
from written_run import write_run

import wanbench

HOME = wanbench._HOME | wanbench._classes() | {n: home.rpartition(".")[0] for n, home in wanbench._MODULES.items()}


def test_all_public_names_are_listed():
    assert wanbench.__all__ == sorted(HOME) == dir(wanbench)


def test_type_checkers_and_editors_see_the_same_names_and_modules():
    stub = Path(wanbench.__file__).with_suffix(".pyi")
    lines = stub.read_text(encoding="utf-8").splitlines()[2:]
    expected = sorted(f"from {module} import {name} as {name}" for name, module in HOME.items())
    assert sorted(lines) == expected, f"missing: {set(expected) - set(lines)}; too many: {set(lines) - set(expected)}"
    assert stub.with_name("py.typed").is_file()


@pytest.mark.parametrize("name", wanbench.__all__)
def test_every_public_name_exists_and_is_documented(name):
    found = getattr(wanbench, name)
    assert found.__doc__
    assert found is getattr(importlib.import_module(HOME[name]), name)


def test_the_module_docstring_lists_every_public_name_outside_the_registries():
    for name in {*wanbench._HOME, *wanbench._MODULES}:
        assert name in wanbench.__doc__


def test_importing_wanbench_loads_nothing_heavy():
    code = "import sys; before = set(sys.modules); import wanbench; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "wanbench" in loaded
    assert loaded.isdisjoint({"harness", "workloads", "netprofiles", "torch", "pandas", "numpy", "pydantic", "click"})


def test_a_notebook_shows_how_many_cells_are_ok_and_which_algorithm_is_best(tmp_path):
    rows = synthetic_rows.latency_sweep(reps=1)
    rows[-1].update(status="failed", reason="it broke", step_time_s=None, scalability=None)
    run = wanbench.Run(write_run(tmp_path / "<b>", rows))
    shown = run._repr_html_()
    counts = "42 cells ok, 1 failed; emulated by relay on netns"
    assert shown.startswith(f"<p><strong>&lt;b&gt;</strong>: {counts}</p><p>Best algorithm in each case:</p><table")
    assert shown.count("<tr>") == 6
    assert len(shown) < 4000
    assert run.best()["rtt_ms"].tolist() == list(synthetic_rows.RTTS_MS)
    nothing = wanbench.Run(write_run(tmp_path / "empty", []))
    assert nothing._repr_html_() == "<p><strong>empty</strong>: nothing measured yet</p>"


def test_a_report_is_written_from_python(tmp_path):
    run = wanbench.Run(write_run(tmp_path / "t", synthetic_rows.one_worker(reps=1)))
    assert run.report() == tmp_path / "t" / "report.html"
    assert run.report(tmp_path / "page.html").read_text().startswith("<!doctype html>")
