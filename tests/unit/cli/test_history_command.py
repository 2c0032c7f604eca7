"""`wanbench history`: runs, a baseline in git, or a file of outcomes; and what it refuses."""

from __future__ import annotations

import json
import subprocess

import pytest
from command_line import as_it_was, data, refused, wanbench  # noqa: F401
from made_outcomes import commit, outcomes
from synthetic_rows import latency_sweep
from written_run import write_run

CELL = "ssgd w4 20ms"


def journal(path, made):
    path.write_text("".join(f"{each.model_dump_json(by_alias=True)}\n" for each in made))


@pytest.fixture
def history(tmp_path):
    made = outcomes({CELL: [0.5, 0.5, 0.25], "dts w4 20ms": [0.9] * 3}, testbed="virtual")
    journal(tmp_path / "h.jsonl", made)
    return tmp_path / "h.jsonl"


def runs(tmp_path, *names, **change):
    for name in names:
        rows = [{**row, "axes": {"algorithm": row["algorithm"], "workers": row["workers"], "rtt": row["rtt_ms"]}}
                for row in latency_sweep(reps=2, **change)]  # fmt: skip
        folder = write_run(tmp_path / name / "t", rows)
        (folder.path / "spec.resolved.json").unlink()


def test_the_change_its_commit_and_its_size_are_printed(history):
    shown = wanbench("history", "h.jsonl", "--no-figures")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == (
        f"t: scalability of 2 cells at 3 commits, {commit(0)[:9]} to {commit(2)[:9]}; simulated\n"
        f"1 of 2 cells changed; largest loss -50.0 % at {commit(2)[:9]} ({CELL}).\n\n"
        f"{commit(2)[:9]}  2026-01-03  Change number 2\n\n"
        "cell          before  after   change            in commits\n"
        "------------  ------  -----  -------  --------------------  -----\n"
        "ssgd w4 20ms     0.5   0.25  -50.0 %  000000100..000000200  WORSE\n"
    )


def test_figure_page_and_points_are_written(history, tmp_path):
    shown = wanbench("history", "h.jsonl")
    folder = tmp_path / "results" / "history-t"
    names = [f"history{width}.{form}" for width in ("", "-column") for form in ("svg", "pdf", "png")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "history.csv", "history.html"])
    assert shown.stderr.splitlines()[-1] == "results/history-t/history.html"
    assert (folder / "history.csv").read_text().splitlines()[0] == (
        "cell,commit,date,scalability,scalability_min,scalability_max,repetitions,level"
    )
    assert wanbench("history", "h.jsonl", "-o", "elsewhere").exit_code == 0
    assert (tmp_path / "elsewhere" / "history.html").is_file()


def test_only_keeps_the_cells_of_a_value(history):
    kept = data("history", "h.jsonl", "--only", "algorithm=ssgd", "--no-figures")
    assert [cell["cell"] for cell in kept["cells"]] == [CELL]
    assert refused("history", "h.jsonl", "--only", "rtt=1s") == (
        f"wanbench: --only rtt=1s: no cell is left; cells: dts w4 20ms, {CELL}"
    )
    assert refused("history", "h.jsonl", "--only", "ssgd") == (
        "wanbench: --only ssgd: expected AXIS=VALUE, e.g. --only algorithm=ssgd"
    )


def test_run_folders_are_followed_in_the_order_given(tmp_path):
    runs(tmp_path, "one", "two")
    found = data("history", "one/t", "two/t", "--metric", "step_time_s", "--only", "rtt=20.0", "--no-figures")
    assert (found["experiment"], len(found["commits"]), len(found["cells"])) == ("t", 2, 7)
    assert {each["commit"] for each in found["commits"]} == {None}
    low, high = found["cells"][0]["values"][0][1:]
    assert low < high


def test_a_run_knows_the_commit_of_the_folder_in_which_it_ran(tmp_path):
    runs(tmp_path, "one")
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*command, "init", "--quiet"], check=True)
    subprocess.run([*command, "commit", "--quiet", "--allow-empty", "--message", "the subject"], check=True)
    name = subprocess.run([*command, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    path = tmp_path / "one" / "t" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "project": f"{name}-dirty"}))
    (found,) = data("history", "one/t", "--no-figures")["commits"]
    assert (found["commit"], found["subject"], found["dirty"]) == (name, "the subject", True)


def test_runs_of_two_experiments_are_refused(tmp_path):
    runs(tmp_path, "one")
    write_run(tmp_path / "u", latency_sweep(reps=1))
    assert refused("history", "one/t", "u") == (
        "wanbench: u: a run of 'u', and one/t is one of 't'; give runs of one experiment"
    )


@pytest.mark.parametrize(
    ("metric", "then"),
    [("scalabilty", "; did you mean 'scalability'?"), ("accuracy", "; expected one of: scalability")],
)
def test_a_metric_that_no_run_has_is_refused(history, metric, then):
    assert refused("history", "h.jsonl", "--metric", metric) == (
        f"wanbench: --metric {metric}: no cell has it in any of 3 outcomes{then}"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "history: give run folders, a file that `check --append` wrote, or --baseline FILE"),
        (("h.jsonl", "h.jsonl"), "h.jsonl h.jsonl: give one file of outcomes, or run folders"),
        (("--baseline", "b.json", "a", "b"), "--baseline b.json: expected at most one range of commits, got a b"),
    ],
)
def test_sources_that_do_not_go_together_are_refused(history, arguments, message):
    assert refused("history", *arguments) == f"wanbench: {message}"


@pytest.mark.parametrize("manifest", ["[]", '{"cpu": 7}', '{"versions": []}', "{", "null"])
def test_a_damaged_manifest_is_one_line(tmp_path, manifest):
    runs(tmp_path, "one")
    (tmp_path / "one" / "t" / "manifest.json").write_text(manifest)
    assert refused("history", "one/t").startswith("wanbench: one/t: not a run that can be followed: ")
