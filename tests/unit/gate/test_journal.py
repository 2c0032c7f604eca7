"""The file of `check --append`: a line for each check, which survives interruptions and damage."""

from __future__ import annotations

import json

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401
from gate_rows import alone, row
from small_spec import GOOD

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.gate import journal
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run import manifest

CELL = "ssgd w4 100ms"


@pytest.fixture
def report(tmp_path):
    """Make a report of a run with two repetitions, of which one cell failed."""
    folder = RunFolder(tmp_path / "head" / "t")
    facts = {"cpu": "A", "kernel": "6.1", "versions": {"torch": "2.13", "wanbench": "0.1.0"}}
    folder.prepare(None, {}, facts)
    rows = [alone(rep) for rep in range(2)]
    rows += [row(rep=rep, step_time_s=0.5 + 0.1 * rep, testbed="netns", emulator="relay") for rep in range(2)]
    rows += [row("dts", rep=rep, status="invalid", reason="late") for rep in range(2)]
    for one in rows:
        part = folder.path / "cells" / one["cell"] / f"rep-{one['rep']}"
        part.mkdir(parents=True)
        (part / "result.json").write_text(json.dumps({**one, "code": "c0de"}))
    found = (Judgement(CELL, Verdict.REGRESSED, "slower"), Judgement("one-worker w1", Verdict.UNCHANGED))
    return Report("t", "against b.json", found, files={"head": str(folder.path)})


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_every_metric_of_every_cell_and_the_verdict(report, tmp_path):
    path = tmp_path / "new" / "history.jsonl"
    assert journal.append(path, report)
    assert path.read_text().count("\n") == 1
    (outcome,) = read(path)
    assert {key: value for key, value in outcome.items() if key != "cells"} == {
        "schema": 1,
        "experiment": "t",
        "dirty": False,
        "verdict": "regressed",
        "wanbench": "0.1.0",
        "torch": "2.13",
        "processor": "A",
        "kernel": "6.1",
    }
    cell = outcome["cells"][CELL]
    assert (cell["testbed"], cell["emulator"], cell["repeats"], cell["verdict"]) == ("netns", "relay", 2, "regressed")
    assert cell["metrics"]["step_time_s"] == pytest.approx([0.55, 0.5, 0.6])
    assert cell["metrics"]["messages_sent"] == [20, 20, 20]
    assert (cell["code"], cell["cell"]) == ("c0de", "ssgd 4 100ms")


def test_a_cell_without_a_valid_repetition_has_no_metrics(report, tmp_path):
    journal.append(tmp_path / "h.jsonl", report)
    assert read(tmp_path / "h.jsonl")[0]["cells"]["dts w4 100ms"]["metrics"] == {}


def test_a_check_that_measured_nothing_appends_nothing(tmp_path):
    assert not journal.append(tmp_path / "h.jsonl", Report("t", "against nothing"))
    assert not (tmp_path / "h.jsonl").exists()


def test_a_line_that_was_cut_short_spoils_no_other(report, tmp_path):
    path = tmp_path / "h.jsonl"
    journal.append(path, report)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    journal.append(path, report)
    first, _, last = path.read_text().splitlines()
    assert json.loads(first) == json.loads(last)


@pytest.mark.parametrize("line", ["null", "{}", "[" * 10_000, '{"schema": 2}', "\x00", "\ud800"])
def test_a_damaged_line_is_skipped(report, tmp_path, line):
    path = tmp_path / "h.jsonl"
    journal.append(path, report)
    with path.open("a", errors="surrogatepass") as file:
        file.write(f"{line}\n")
    journal.refuse_other(path, "t")
    with pytest.raises(SpecError):
        journal.refuse_other(path, "u")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(HostError) as folder:
        journal.refuse_other(tmp_path, "t")
    assert str(folder.value) == f"{tmp_path}: cannot be read (Is a directory)"


def test_text_in_a_line_cannot_control_the_terminal(report, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "git", lambda *_: "\0".join(("c0de", "2026-01-01", "\x1b]0;owned\x07fix")))
    monkeypatch.setattr(RunFolder, "manifest", lambda _: {"git": "c0de", "cpu": "\x1b[2J\x9b2J"})
    journal.append(tmp_path / "h.jsonl", report)
    assert read(tmp_path / "h.jsonl")[0]["subject"] == "fix"
    assert (tmp_path / "h.jsonl").read_text().removesuffix("\n").isprintable()


# ---------------------------------------------------------------- the command

SPEC = GOOD.replace("[sweep]", '[run]\ntestbed = "virtual"\nrepeats = 1\n\n[sweep]')
CHECK = ("check", "t.toml", "--allow-no-code", "--baseline", "b.json")


def test_a_check_appends_its_outcome(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "_revision", lambda *_: None)
    (tmp_path / "t.toml").write_text(SPEC)
    assert wanbench(*CHECK, "--accept", "--append", "h.jsonl").exit_code == 0
    assert wanbench(*CHECK, "--append", "h.jsonl", "--metrics", "bencher", "m.json").exit_code == 0
    assert [outcome["verdict"] for outcome in read(tmp_path / "h.jsonl")] == ["accepted", "unchanged"]
    assert all("step-time" in measures for measures in json.loads((tmp_path / "m.json").read_text()).values())


def test_metrics_of_a_check_that_measured_nothing_are_said_to_be_missing(tmp_path, monkeypatch):
    (tmp_path / "t.toml").write_text(SPEC)
    monkeypatch.setattr(journal, "measured", lambda report: None)
    result = wanbench(*CHECK, "--accept", "--metrics", "asv", "folder")
    assert "wanbench: --metrics asv folder: nothing was measured, so nothing was written\n" in result.stderr
    assert not (tmp_path / "folder").exists()


def test_a_file_of_another_experiment_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "t.toml").write_text(SPEC)
    (tmp_path / "h.jsonl").write_text('{"schema":1,"experiment":"u","cells":{}}\n')
    assert refused(*CHECK, "--accept", "--append", "h.jsonl") == (
        "wanbench: --append h.jsonl: has outcomes of 'u', not of 't'; use one file for each experiment"
    )
    assert not (tmp_path / "results").exists()


def test_the_noise_of_a_host_is_no_outcome(tmp_path):
    (tmp_path / "t.toml").write_text(SPEC)
    assert refused("check", "t.toml", "--aa", "--append", "h.jsonl") == (
        "wanbench: --append: not with --aa, which measures this host, not a commit; remove one of them"
    )
