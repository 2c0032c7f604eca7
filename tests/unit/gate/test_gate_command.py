"""`wanbench check` in this process: refused options, and verdicts on simulated cells."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401
from gate_rows import alone, row
from git_command import git
from small_spec import GOOD

from wanbench.harness.gate import check
from wanbench.harness.gate import noise as host_noise
from wanbench.harness.gate.sides import Measurement, Side
from wanbench.harness.gate.verdict import name
from wanbench.harness.results.store import RunFolder

SPEC = GOOD.replace("[sweep]", '[run]\ntestbed = "virtual"\nrepeats = 1\n\n[sweep]')
CHECK = ("check", "t.toml", "--allow-no-code")
REQUIRE = '\n[[gate.require]]\nmetric = "scalability"\nwhere = {{ algorithm = "ssgd" }}\nmin = {min}\n'


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "t.toml").write_text(SPEC)
    return tmp_path / "t.toml"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "wanbench: t.toml: nothing to check; give --baseline FILE or --base REV, or write [[gate.require]]",
        ),
        (("--accept",), "wanbench: --accept: needs --baseline FILE, the file to write"),
        (("--head", "HEAD"), "wanbench: --head: needs --base to compare with"),
        (("--aa", "--base", "main"), "wanbench: --base and --aa: choose one"),
        (("--baseline", "b.json", "--aa"), "wanbench: --baseline and --aa: choose one"),
    ],
)
def test_contradictory_options_are_refused_in_one_line(spec, arguments, message):
    assert refused(*CHECK, *arguments) == message


def test_a_check_names_its_payload_scale(spec):
    message = refused(*CHECK, "--baseline", "b.json", "--set", "workload.payload_scale=auto")
    assert message.startswith('wanbench: t.toml: workload.payload_scale: "auto" depends on the host')
    assert "`check`" in message


def test_a_requirement_without_a_cell_is_refused_before_anything_is_measured(spec):
    spec.write_text(SPEC + REQUIRE.format(min=0.5).replace("ssgd", "dts"))
    said = refused(*CHECK)
    assert said.startswith("wanbench: t.toml: gate.require.0.where: ")
    assert "'dts'" in said
    assert not spec.with_name("results").exists()


def test_an_empty_base_is_refused_although_requirements_could_be_checked_without_one(spec):
    spec.write_text(SPEC + REQUIRE.format(min=0.01))
    said = refused(*CHECK, "--base", "")
    assert said.startswith("wanbench: --base : neither a run folder nor a revision")


def test_an_unknown_key_of_the_gate_is_answered_with_a_similar_one(spec):
    spec.write_text(SPEC + "\n[gate]\nmax_slowdwn = 0.1\n")
    assert refused(*CHECK) == "wanbench: t.toml: gate.max_slowdwn: unknown key; did you mean 'max_slowdown'?"


def test_a_run_without_a_baseline_is_refused_before_anything_is_measured(spec):
    assert refused(*CHECK, "--baseline", "b.json") == (
        "wanbench: b.json: there is no such baseline; nothing can be compared; write a baseline with --accept"
    )
    assert not spec.with_name("results").exists()


def test_a_check_of_no_code_of_the_user_is_refused(spec):
    assert refused("check", "t.toml", "--baseline", "b.json") == (
        "wanbench: t.toml: no cell depends on a file of yours, so no change of your code can fail this check; name "
        'your program (command = ["python", "train.py"]), model ("my_pkg.train:make") or algorithm, or allow it with '
        "--allow-no-code"
    )


def test_accept_writes_the_baseline_and_the_next_check_compares_with_it(spec):
    accepted = wanbench(*CHECK, "--baseline", "b.json", "--accept")
    assert accepted.exit_code == 0, accepted.stderr
    again = wanbench(*CHECK, "--baseline", "b.json")
    assert (again.exit_code, again.stdout) == (
        0,
        "t: against b.json\n\n2 comparisons and 0 requirements judged; your code: none\n2 unchanged.\n",
    )
    baseline = json.loads(spec.with_name("b.json").read_text())
    baseline["cells"]["ssgd w2 10ms"]["messages_sent"] -= 1
    spec.with_name("b.json").write_text(json.dumps(baseline))
    worse = wanbench(*CHECK, "--baseline", "b.json", "--junit", "j.xml", "--summary", "s.md")
    assert worse.exit_code == 1
    assert worse.stdout.splitlines()[-1] == "1 regressed, 1 unchanged."
    assert 'failures="1"' in spec.with_name("j.xml").read_text()
    assert spec.with_name("s.md").read_text().startswith("### wanbench check: t\n\n**1 regressed, 1 unchanged.**\n")
    stored = json.loads((spec.parent / "results/check-t/check.json").read_text())
    assert (stored["exit_code"], stored["counts"]["regressed"]) == (1, 1)


def test_accepting_a_part_keeps_the_rest(spec):
    spec.write_text(SPEC.replace('rtt = ["10ms"]', 'rtt = ["10ms", "20ms"]'))
    wanbench(*CHECK, "--baseline", "b.json", "--accept")
    before = spec.with_name("b.json").read_bytes()
    part = wanbench(*CHECK, "--baseline", "b.json", "--accept", "--only", "rtt=20ms")
    assert (part.exit_code, part.stdout.splitlines()[-1]) == (0, "2 unchanged.")
    assert spec.with_name("b.json").read_bytes() == before


def test_requirements_are_checked_without_a_baseline_and_a_broken_one_is_a_regression(spec):
    spec.write_text(SPEC + REQUIRE.format(min=0.1))
    assert wanbench(*CHECK).exit_code == 0
    spec.write_text(SPEC + REQUIRE.format(min=0.9))
    broken = wanbench(*CHECK)
    assert broken.exit_code == 1
    assert broken.stdout.splitlines()[-1] == "no cell was compared; 1 of 1 requirement not met."
    assert "scalability of ssgd w2 10ms: at least 0.9  NOT MET" in broken.stdout


def test_a_requirement_on_cells_excluded_by_only_is_skipped_beside_other_judgements(spec):
    text = SPEC.replace("ssgd = {}", "ssgd = {}\nsparse = { period = 2 }") + REQUIRE.format(min=0.99)
    spec.write_text(text)
    assert wanbench(*CHECK).exit_code == 1
    assert wanbench(*CHECK, "--baseline", "b.json", "--accept", "--only", "algorithm=sparse-p2").exit_code == 0
    assert wanbench(*CHECK, "--baseline", "b.json", "--only", "algorithm=sparse-p2").exit_code == 0
    assert refused(*CHECK, "--only", "algorithm=sparse-p2") == (
        "wanbench: t.toml: nothing to check: --only leaves no cell of any requirement"
    )


def test_github_gets_annotations_on_stderr_and_a_step_summary(spec, monkeypatch, tmp_path):
    spec.write_text(SPEC + REQUIRE.format(min=0.9))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    result = wanbench(*CHECK, "--github")
    lines = [line for line in result.stderr.splitlines() if line.startswith("::")]
    assert lines[0] == (
        "::error file=t.toml,title=wanbench check::1 regressed: scalability of ssgd w2 10ms: at least 0.9"
    )
    assert "| scalability of ssgd w2 10ms: at least 0.9 | NOT MET |" in (tmp_path / "step.md").read_text()


def test_a_host_that_cannot_run_the_cells_is_exit_code_3(spec, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    spec.write_text(SPEC.replace("virtual", "docker"))
    result = wanbench(*CHECK, "--base", ".")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("wanbench: ")


def _recorded(tmp_path, folder, factor):
    run = RunFolder(tmp_path / folder)
    run.prepare(None, {}, {"cpu": "A", "kernel": "6.1", "versions": {"torch": "2.13"}})
    rows = [alone(rep, testbed="netns") for rep in range(5)]
    rows += [
        row("ssgd", rep, rtt="10ms", workers=2, testbed="netns", step_time_s=0.5 * factor * (1 + 0.002 * (rep % 3)))
        for rep in range(5)
    ]
    for one in rows:
        part = run.path / "cells" / one["cell"] / f"rep-{one['rep']}"
        part.mkdir(parents=True)
        (part / "result.json").write_text(json.dumps({**one, "code": "c"}))
    return rows


def test_two_result_folders_are_compared_with_a_note_on_their_times(spec, tmp_path):
    rows = _recorded(tmp_path, "old", 1.0)
    _recorded(tmp_path, "new", 1.2)
    assert {name(one) for one in rows} == {"one-worker w1", "ssgd w2 10ms"}
    noise = ("--noise", "none.json")
    result = wanbench(*CHECK, "--base", "old", "--head", "new", *noise)
    assert result.exit_code == 1, result.stderr
    assert "ssgd w2 10ms" in result.stdout
    assert "+20.0 %" in result.stdout
    apart = "base and head were measured at different times, so changes of the host count as changes of the code"
    assert apart in result.stdout
    assert "note: the noise of this host is not known" in result.stdout
    _recorded(tmp_path, "same", 1.0)
    assert wanbench(*CHECK, "--base", "old", "--head", "same", *noise).exit_code == 0
    assert refused(*CHECK, "--base", "old", "--head", "old", *noise).startswith(
        "wanbench: --base and --head have the same files (old, old); "
    )
    assert refused(*CHECK, "--base", "old", "--head", ".") == (
        "wanbench: old: a run folder can only be compared with another run folder"
    )


def test_results_of_another_experiment_are_refused(spec, tmp_path):
    _recorded(tmp_path, "old", 1.0)
    spec.write_text(SPEC.replace('"10ms"', '"99ms"').replace("[2]", "[3]"))
    folder = RunFolder(tmp_path / "other")
    folder.prepare(None, {}, {})
    assert refused(*CHECK, "--base", "other", "--head", "old").startswith(
        "wanbench: --base other: has no results of cells of t"
    )


def test_an_undecided_check_has_exit_code_5_unless_it_is_allowed_to_pass(spec, tmp_path):
    _recorded(tmp_path, "old", 1.0)
    _recorded(tmp_path, "new", 1.0)
    for path in (tmp_path / "new").glob("cells/ssgd*/rep-*/result.json"):
        data = json.loads(path.read_text())
        path.write_text(json.dumps(data | {"step_time_s": 0.5 * (1 + 0.4 * (data["rep"] % 2))}))
    arguments = (*CHECK, "--base", "old", "--head", "new", "--noise", "none.json")
    unsure = wanbench(*arguments)
    assert (unsure.exit_code, unsure.stdout.splitlines()[-1]) == (5, "1 inconclusive, 2 unchanged.")
    assert wanbench(*arguments, "--inconclusive", "pass").exit_code == 0


def test_a_baseline_of_another_spec_is_not_a_regression(spec):
    check = (*CHECK, "--baseline", "b.json")
    assert wanbench(*check, "--accept").exit_code == 0
    assert wanbench(*check).exit_code == 0
    edited = wanbench(*check, "--set", "workload.params=2000")
    assert edited.exit_code == 5
    assert "the spec of this cell has changed since the baseline" in edited.stdout
    assert "REGRESSED" not in edited.stdout
    assert "write them to the baseline with --accept" in edited.stdout


def test_a_noise_above_the_limit_is_no_pass_and_one_that_is_no_number_is_refused(spec, tmp_path):
    _recorded(tmp_path, "old", 1.0)
    _recorded(tmp_path, "new", 1.6)
    path = tmp_path / "noise.json"
    host_noise.write(path, "t", "", {"ssgd w2 10ms": 0.5, "one-worker w1": 0.01, "all cells": 0.5})
    checked = (*CHECK, "--base", "old", "--head", "new", "--noise", "noise.json")
    result = wanbench(*checked, "--set", "gate.max_slowdown=0.5")
    assert result.exit_code == 5, result.stdout
    assert "equal sides differed by 50.0 % here; the limit is 25 %; measure the noise again with --aa" in result.stdout
    path.write_text(path.read_text().replace("0.5", "NaN"))
    assert refused(*checked).startswith("wanbench: noise.json: not a noise file of `check --aa`: ")


def test_an_image_that_both_revisions_would_share_is_refused(monkeypatch, spec, tmp_path):
    monkeypatch.setattr(check, "check_host", lambda _: None)
    (tmp_path / "mine.py").write_text("from wanbench.workloads.algorithms.ssgd import SSGD as Mine\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        git(tmp_path, *arguments)
    spec.write_text(spec.read_text().replace("ssgd = {}", 'mine = { kind = "mine:Mine" }'))
    said = refused("check", "t.toml", "--testbed", "docker", "--base", "HEAD")
    assert said.startswith("wanbench: t.toml: containers run the code of their image, not of a checkout; ")


@pytest.mark.parametrize(("head", "same"), [({"a.py": "1"}, True), ({"a.py": "2"}, False), ({"b.py": "1"}, False)])
def test_sides_that_ran_the_same_code_are_said_to_be_the_same(monkeypatch, spec, tmp_path, head, same):
    """The files that ran decide, and not the revisions: those of an unmeasured change differ."""
    monkeypatch.setattr(check, "check_host", lambda _: None)
    monkeypatch.setattr(check.sides, "opened", lambda role, title, *_: nullcontext(Side(role, title, same=role)))

    def measure(measurement, repeats, leave_out):
        measurement.ran = {"a.py": "1"} if measurement.side.role == "base" else head
        out = measurement.folder.path
        for one in (alone(), row("ssgd", rtt="10ms", workers=2)):
            (out / "cells" / one["cell"] / "rep-0").mkdir(parents=True)
            (out / "cells" / one["cell"] / "rep-0" / "result.json").write_text(json.dumps({**one, "code": "c"}))
        (out / "manifest.json").write_text("{}")

    monkeypatch.setattr(Measurement, "measure", measure)
    result = wanbench(*CHECK, "--base", "main", "--noise", "none.json")
    assert (result.exit_code, "note: the code under test is the same on both sides\n" in result.stdout) == (0, same)
