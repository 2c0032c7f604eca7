"""A run folder from another user can show wrong values, but cannot reach anything outside the folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command_line import as_it_was, finished, refused, wanbench  # noqa: F401
from on_relay import expand

from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.experiment import Spec

READING = [
    "results", "results --format json", "figures", "report", "verify", "compare smoke --by workers",
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    finished(tmp_path)
    return tmp_path / "results" / "smoke"


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("name", ["figures", "results.parquet", ".results.parquet.part", "cells/x", ".lock"])
def test_a_link_out_of_a_run_is_refused_before_any_read_or_write(run, tmp_path, command, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run / name).symlink_to(precious)
    message = refused(*command.split())
    problem = "neither a file nor a folder, which a run cannot contain; remove it"
    assert message == f"wanbench: results/smoke/{name}: {problem}"
    assert precious.read_text() == "mine"


def test_run_refuses_a_link_too_and_does_not_change_its_target(run, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run / ".lock").symlink_to(precious)
    message = refused("run", "smoke", "--testbed", "virtual")
    assert "results/smoke/.lock: neither a file nor a folder" in message
    assert precious.read_text() == "mine"


def test_a_pipe_in_a_run_does_not_block(run):
    cell = next((run / "cells").iterdir())
    os.mkfifo(cell / "rep-7")
    assert "neither a file nor a folder" in refused("results")


def test_the_text_of_a_row_cannot_control_the_terminal(run):
    path = next(run.glob("cells/*/rep-0/result.json"))
    row = json.loads(path.read_text())
    path.write_text(
        json.dumps(row | {"algorithm": "ssgd\x1b]0;owned\x07\x9b2J\u202e", "status": "failed", "reason": "\x1b[2J"})
    )
    for form in ("table", "json", "csv"):
        output = wanbench("results", "--format", form).stdout
        assert not set(output) & {"\x1b", "\x07", "\x9b", "\u202e"}


ROWS = ["[]", "{}", "null", "7", "[" * 100_000, '{"cell_key": 1, "code": "", "rep": [], "status": {}}', "\ud800"]


@pytest.mark.parametrize("text", ROWS)
def test_an_invalid_result_counts_as_not_finished(run, text):
    path = next(run.glob("cells/*/rep-0/result.json"))
    path.write_text(text, errors="surrogatepass")
    assert len(RunFolder(run).rows()) == 4
    assert wanbench("results").exit_code == 0


@pytest.mark.parametrize("command", [pytest.param(("results",), marks=pytest.mark.long), ("figures",)])
def test_showing_a_run_imports_none_of_the_modules_that_it_names(run, tmp_path, command):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    for path in run.glob("cells/*/rep-0/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "evil:X", "algorithm": "evil:X"}))
    assert wanbench(*command).exit_code == 0
    assert "evil" not in sys.modules


@pytest.mark.parametrize("name", ["../escape", "/etc/x", "a/b", "..", ".hidden", "a\x1b[2J", "a b"])
def test_the_name_of_an_experiment_cannot_be_a_path(tmp_path, name):
    (tmp_path / "spec.toml").write_text(
        f'schema = 1\nname = {json.dumps(name)}\n[workload]\nname = "resnet50-v100"\n[algorithms]\nssgd = {{}}\n'
        '[network]\nprofile = "lan"\n[sweep]\nworkers = [2]\n'
    )
    message = refused("plan", "spec.toml")
    assert "spec.toml: name" in message
    assert message.isprintable()
    assert {path.name for path in tmp_path.iterdir()} == {"spec.toml"}


@pytest.mark.parametrize("key", ["../x", "a/b", ".", "..", "/etc/x"])
def test_the_folder_of_a_cell_is_inside_its_run_for_any_label_of_its_algorithm(key):
    text = (
        'schema = 1\nname = "x"\n[workload]\nname = "resnet50-v100"\n[network]\nprofile = "lan"\n'
        f'[algorithms]\n{json.dumps(key)} = {{ kind = "ssgd" }}\n[sweep]\nworkers = [2]\n'
    )
    for cell in expand(Spec.from_toml(text, "spec"), "spec"):
        assert Path("run", cell.slug).resolve().parent == Path("run").resolve()
