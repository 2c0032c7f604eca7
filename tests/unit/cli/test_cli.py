"""The command line: instant help, data on stdout, one line per error on stderr, documented exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from command_line import as_it_was, data, finished, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.cli import COMMANDS, main
from wanbench.harness.errors import HostError, Interrupted, SpecError
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.load import Capacity
from wanbench.harness.plan.plan import make
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.session import Tally
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.library import read

# ---------------------------------------------------------------- help

HEAVY = {"torch", "pandas", "numpy", "matplotlib", "pydantic", "pyarrow"}


def test_help_of_any_command_imports_nothing_heavy():
    code = (
        "import sys\nfrom wanbench.harness.cli import main\n"
        f"for args in {[[], *([name] for name in COMMANDS)]!r}: main([*args, '--help'], standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: ") == 1 + len(COMMANDS)
    assert HEAVY.isdisjoint(done.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_with_that_command(name):
    text = wanbench(name, "--help").stdout
    assert f"Example:  wanbench {name} " in text
    assert wanbench(name, "-h").stdout == text


def test_the_list_of_commands_shows_the_first_line_of_each_help():
    for name, summary in COMMANDS.items():
        assert main.get_command(None, name).short_help == summary  # type: ignore[arg-type]
        assert summary in " ".join(wanbench("--help").stdout.split())


def test_the_exit_codes_are_documented():
    text = " ".join(wanbench("--help").stdout.split())
    assert "0 ok, 1 regression (check), 2 usage or spec, 3 this host cannot, 4 cells failed, 5 inconclusive" in text
    assert "130 interrupted (run again to resume)" in text


def test_the_version_is_that_of_the_package():
    assert wanbench("--version").stdout.startswith("wanbench 0.")


def test_an_unknown_command_is_answered_with_a_similar_one():
    assert refused("rnu").splitlines()[-1] == "Error: no such command 'rnu'; did you mean 'run'?"
    assert refused("qqqq").splitlines()[-1] == "Error: no such command 'qqqq'; see `wanbench --help`"


def test_an_unknown_option_is_a_usage_error():
    assert "No such option" in refused("plan", "smoke", "--onyl", "x=1")


# ---------------------------------------------------------------- plan


def test_plan_shows_every_cell_with_its_predicted_step_time():
    cells = expand(Spec.load("smoke"), "smoke")
    head, columns, _, *lines = wanbench("plan", "smoke").stdout.splitlines()
    assert head.startswith("smoke: 5 cells x 1 = 5 reps; 5 to run, about ")
    assert columns.split() == ["cell", "steps", "law", "s/step", "bound", "by", "to", "run"]
    assert [line.split()[0] for line in lines] == [cell.slug for cell in cells]
    assert [line.split()[2] for line in lines] == [f"{cell.predicted_step_time_s:.3f}" for cell in cells]
    assert all(line.endswith("1  new") for line in lines)


def test_plan_says_why_the_law_predicts_nothing():
    lossy = ("smoke", "--set", "network.loss=5%")
    gaps = [cell["law_gap"] for cell in data("plan", *lossy)["cells"]]
    silent = gaps.count("packet loss")
    assert set(gaps) == {None, "packet loss"}
    out = wanbench("plan", *lossy).stdout
    assert out.count("unknown") == silent + 1
    assert out.splitlines()[-1] == f"law unknown for {silent} cells: packet loss"


def test_plan_tells_an_unusual_size_of_packets():
    assert "packets have" not in wanbench("plan", "smoke").stdout
    assert "network.mtu: packets have up to 9001 bytes" in wanbench("plan", "smoke", "--set", "network.mtu=9001").stdout


def test_plan_tells_how_workers_start_a_launch_line_and_refuses_one_that_cannot_start(tmp_path):
    spec = tmp_path / "launch.toml"
    spec.write_text(
        'schema = 1\nname = "launch"\n[workload]\ncommand = ["torchrun", "--nnodes", "8", "--node-rank=0", "t.py"]\n'
        '[sweep]\nworkers = [2, 4]\nrtt = ["10ms"]\n'
    )
    lines = wanbench("plan", str(spec)).stdout.splitlines()
    assert "on each worker: torchrun --nnodes=4 --node-rank={rank} t.py" in lines
    several = ("plan", str(spec), "--set", "workload.nproc_per_worker=2")
    assert refused(*several, "--json") == refused(*several)
    assert refused(*several).startswith("wanbench: torchrun: starts all")


def test_plan_tells_stock_hosts():
    assert "hosts have" not in wanbench("plan", "smoke").stdout
    stock = wanbench("plan", "smoke", "--set", "network.tcp.preset=stock").stdout
    assert "network.tcp: hosts have the buffers of stock-6.1, so a window can limit a connection" in stock


def test_plan_as_json_holds_the_values_of_the_table():
    plan = data("plan", "smoke")
    assert plan["run"] == "results/smoke"
    assert plan["predicted_s"] > 1.0
    alone, *others = plan["cells"]
    assert (alone["algorithm"], alone["channels"]) == ("one-worker", None)
    assert [cell["axes"]["rtt"] for cell in others] == ["10ms", "10ms", "40ms", "40ms"]
    assert {cell["to_run"] for cell in plan["cells"]} == {1}


SCALED = ("smoke", "--set", "workload.payload_scale=auto", "--testbed", "netns", "--emulator", "relay")


@pytest.fixture
def large_host(monkeypatch):
    """A host that would choose a payload scale above 0.02."""
    monkeypatch.setattr("wanbench.harness.run.host.ThisHost.capacity", lambda self: Capacity(64, 2**40))


def test_plan_says_which_payload_scale_auto_is_and_why(large_host):
    plan, lines = data("plan", *SCALED), wanbench("plan", *SCALED).stdout.splitlines()
    assert lines[1] == f"payload_scale {plan['payload_scale']:g}: {plan['why_scale']}"
    assert plan["why_scale"].startswith("the ")
    assert data("plan", *SCALED[:3], "--testbed", "virtual")["payload_scale"] == 1


def test_a_plan_of_several_payload_scales_has_no_single_one():
    plan = data("plan", "smoke", "--set", "sweep.payload_scale=[0.5,0.1]")
    assert {cell["axes"]["payload_scale"] for cell in plan["cells"] if cell["workers"] > 1} == {0.5, 0.1}
    assert (plan["payload_scale"], plan["why_scale"]) == (None, None)


def test_a_plan_that_continues_a_run_keeps_its_payload_scale(tmp_path, large_host):
    spec = Spec.load("smoke").override({"workload.payload_scale": "auto"})
    stored = make(spec, "smoke", FixedHost(), {"payload_scale": 0.02})
    RunFolder(tmp_path / "results/smoke").prepare(None, stored.to_json(), {})
    assert data("plan", *SCALED)["payload_scale"] == 0.02
    assert data("plan", *SCALED, "--out", "elsewhere")["payload_scale"] != 0.02


def test_run_keeps_the_payload_scale_of_the_run_that_it_continues_unless_it_is_fresh(measured, tmp_path, large_host):
    _, calls = measured
    spec = Spec.load("smoke").override({"workload.payload_scale": "auto"})
    stored = make(spec, "smoke", FixedHost(), {"payload_scale": 0.02})
    RunFolder(tmp_path / "results/smoke").prepare(None, stored.to_json(), {})
    wanbench("run", *SCALED)
    wanbench("run", *SCALED, "--fresh")
    kept, fresh = [{cell.rate_scale for cell in call["cells"]} for call in calls]
    assert kept == {0.02} != fresh


def test_plan_writes_nothing(tmp_path):
    wanbench("plan", "smoke")
    assert list(tmp_path.iterdir()) == []


def test_only_keeps_cells_and_the_one_worker_cells_they_need():
    kept = data("plan", "smoke", "--only", "algorithm=ssgd", "--only", "rtt=10ms")["cells"]
    assert [cell["algorithm"] for cell in kept] == ["one-worker", "ssgd"]
    both = data("plan", "smoke", "--only", "rtt=10ms", "--only", "rtt=40ms")["cells"]
    assert len(both) == 5, "the same axis twice is either"


def test_only_finds_the_specs_own_value_if_other_cells_name_the_axis():
    cells = data("plan", "dts-world", "--only", "workload.name=resnet50-v100")["cells"]
    assert len(cells) == 1 + 27
    assert {cell["axes"].get("workload.name") for cell in cells} == {None}


def test_set_testbed_and_emulator_change_the_spec():
    assert len(data("plan", "smoke", "--set", 'sweep.rtt=["1ms"]', "--set", "run.repeats=7")["cells"]) == 3
    assert data("plan", "smoke", "--set", "run.repeats=7")["cells"][0]["to_run"] == 7
    assert data("plan", "smoke", "--testbed", "netns", "--emulator", "relay") == data("plan", "smoke")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["smok"], "smok: no such file and no such experiment; did you mean 'smoke'?"),
        (["smoke", "--set", "repeats"], "--set repeats: expected key=value, e.g. --set run.repeats=1"),
        (["smoke", "--set", "run.repeatz=1"], "--set: run.repeatz: unknown key; did you mean 'repeats'?"),
        (
            ["smoke", "--testbed", "moon"],
            "--set: run.testbed: expected 'auto', 'netns', 'docker' or 'virtual', got 'moon'",
        ),
        (["smoke", "--only", "rtt"], "--only rtt: expected AXIS=VALUE, e.g. --only algorithm=ssgd"),
        (["smoke", "--only", "rtts=1ms"], "--only rtts=...: not an axis of smoke; axes: algorithm, rtt, workers"),
        (["smoke", "--only", "rtt=1ms"], "--only rtt=1ms: no cell is left; values are rtt: 10ms, 40ms"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_wrong_spec_or_option_is_reported_in_one_line_with_exit_code_2(command, args, line):
    assert refused(command, *args) == f"wanbench: {line}"


def test_an_axis_is_dropped_and_a_named_profile_replaces_the_uniform_network():
    args = ("--set", "network.profile=world4", "--drop", "sweep.rtt", "--set", "sweep.workers=[2,4]")
    result = wanbench("plan", "latency-sweep", *args, "--json")
    assert result.stderr == "wanbench: network.rate is dropped: the profile world4 says what limits a path\n"
    cells = json.loads(result.stdout)["cells"]
    assert {axis for cell in cells for axis in cell["axes"]} == {"algorithm", "workers"}
    assert {cell["workers"] for cell in cells} == {1, 2, 4}


def test_plan_has_the_collective_that_auto_stands_for():
    result = wanbench("plan", "world4", "--set", "comm.collective=auto", "--json")
    cells = [cell for cell in json.loads(result.stdout)["cells"] if cell["workers"] > 1]
    assert {cell["collective"] for cell in cells} <= {"direct", "gloo", "hierarchical", "ring"}
    chosen = wanbench("plan", "world4", "--set", f"comm.collective={cells[0]['collective']}", "--json")
    same = [cell for cell in json.loads(chosen.stdout)["cells"] if cell["workers"] > 1]
    assert same[0]["predicted_step_time_s"] == cells[0]["predicted_step_time_s"]


@pytest.mark.parametrize("key", ["sweep.rtts", "rtt"])
def test_a_key_that_cannot_be_dropped_is_answered_with_a_similar_one(key):
    assert refused("plan", "smoke", "--drop", key) == (
        f"wanbench: --drop {key}: the spec does not set this key; did you mean 'sweep.rtt'?"
    )


def test_a_required_key_cannot_be_dropped():
    assert refused("plan", "smoke", "--drop", "algorithms").startswith("wanbench: --drop: algorithms: ")


def test_a_spec_is_read_from_standard_input():
    assert wanbench("plan", "-", stdin=read("smoke")).stdout == wanbench("plan", "smoke").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [("x =", "<stdin>: not valid TOML"), (read("smoke").replace("10ms", "10"), "<stdin>"), ("", "<stdin>: schema")],
)
def test_a_mistake_on_standard_input_is_named(text, message):
    result = wanbench("plan", "-", stdin=text)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"wanbench: {message}")


def test_check_needs_a_spec_that_can_be_read_again():
    assert refused("check", "-").startswith("wanbench: check -: give a file or a name")


def test_plan_shows_finished_and_failed_cells(tmp_path):
    finished(tmp_path, statuses=("ok", "failed", "invalid"))
    cells = data("plan", "smoke")["cells"]
    assert [(cell["to_run"], cell["why"]) for cell in cells] == [
        (0, "finished"), (1, "failed before: it broke"), (1, "failed before: it broke"), (1, "new"), (1, "new"),
    ]  # fmt: skip
    again = data("plan", "smoke", "--set", "run.repeats=2")["cells"]
    assert (again[0]["to_run"], again[0]["why"]) == (1, "some repetitions are missing")


# ---------------------------------------------------------------- run


@pytest.fixture
def measured(monkeypatch):
    """Record the calls of `run` to the harness; `outcome` is returned or raised."""
    calls = []

    def measure_all(plan, folder, cells=None, **options):
        calls.append({"spec": plan.spec, "cells": cells, "folder": folder, **options})
        if isinstance(measure_all.outcome, BaseException):
            raise measure_all.outcome
        return measure_all.outcome

    measure_all.outcome = Tally(ok=1)
    monkeypatch.setattr("wanbench.harness.run.together.measure_all", measure_all)
    return measure_all, calls


def test_run_prints_the_folder_and_nothing_else_on_stdout(measured):
    result = wanbench("run", "smoke", "--out", "elsewhere")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "elsewhere/smoke\n", "")


def test_run_passes_the_spec_as_written_and_as_resolved(measured):
    _, (calls) = measured
    wanbench(
        "run", "smoke", "--set", "run.repeats=2", "--only", "algorithm=ssgd", "--jobs", "3", "--keep", "--no-figures"
    )
    (call,) = calls
    assert call["text"] == read("smoke")
    assert call["spec"].run.repeats == 2
    assert [cell.label for cell in call["cells"]] == ["one-worker", "ssgd", "ssgd"]
    assert (call["jobs"], call["fresh"], call["keep"], call["draw"]) == (3, False, True, False)


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (SpecError("x.toml: wrong"), 2, "x.toml: wrong"),
        (HostError("/dev/net/tun: not there"), 3, "/dev/net/tun: not there"),
        (Interrupted("interrupted; the same command continues"), 130, "interrupted; the same command continues"),
    ],
)
def test_an_error_is_one_line_with_the_documented_exit_code(measured, outcome, code, message):
    measured[0].outcome = outcome
    assert refused("run", "smoke", code=code) == f"wanbench: {message}"


def test_ctrl_c_before_the_first_cell_acts_as_during_a_cell(measured):
    measured[0].outcome = KeyboardInterrupt()
    message = refused("run", "smoke", code=130)
    assert message.startswith("wanbench: interrupted; ")
    assert message.endswith("the same command continues")


def test_failed_cells_are_exit_code_4_and_the_folder_is_still_printed(measured):
    measured[0].outcome = Tally(ok=1, failed=["a", "b", "a"])
    result = wanbench("run", "smoke")
    assert (result.exit_code, result.stdout) == (4, "results/smoke\n")
    assert result.stderr == (
        "wanbench: 3 repetitions have no valid result; failed: a, b (logs: results/smoke/cells/CELL/); "
        "the same command runs only these again\n"
    )


def test_invalid_cells_are_distinguished_from_failed_ones(measured, tmp_path):
    rows = finished(tmp_path, statuses=("ok", "ok", "invalid", "failed"))
    measured[0].outcome = Tally(ok=1, failed=[row["cell"] for row in rows[2:]])
    last = wanbench("run", "smoke").stderr.splitlines()[-1]
    assert f"failed: {rows[3]['cell']} (logs" in last
    assert f"could not keep up: {rows[2]['cell']} (try --jobs 1)" in last


def test_run_ends_with_the_result_and_the_next_step(measured, tmp_path):
    finished(tmp_path)
    result = wanbench("run", "smoke", "--out", str(tmp_path / "results"))
    assert result.stdout == f"{tmp_path}/results/smoke\n"
    assert "dts-d4-p2" in result.stderr
    commands = re.findall("^(?:Next:|     ) wanbench (.*?)(?:  |$)", result.stderr, re.M)
    assert [command.split()[:2] for command in commands] == [
        ["report", "smoke"],
        ["results", "smoke"],
        ["verify", "smoke"],
        ["map", "--workload"],
    ]
    for command in commands[:-1]:
        assert wanbench(*command.split()).exit_code != 2, command
    assert commands[-1] == f"map --workload {tmp_path}/results/smoke/spec.toml --workers 2"


def test_a_spec_that_options_changed_is_not_offered_for_advice(measured, tmp_path):
    finished(tmp_path)
    result = wanbench("run", "smoke", "--out", str(tmp_path / "results"), "--set", "run.repeats=1")
    assert "wanbench map" not in result.stderr
    assert "wanbench advise" not in result.stderr


def test_ctrl_c_in_any_command_is_exit_code_130(monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("wanbench.harness.plan.plan.expand", interrupted)
    assert refused("plan", "smoke", code=130) == "wanbench: interrupted"


def test_fresh_and_keep_exclude_each_other(measured):
    assert refused("run", "smoke", "--fresh", "--keep") == "wanbench: --fresh and --keep: choose one"
    assert measured[1] == []


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_a_number_of_jobs_is_at_least_one(jobs, measured):
    assert "'--jobs'" in refused("run", "smoke", "--jobs", jobs)
    assert measured[1] == []


def test_a_bug_is_one_line_and_with_a_variable_its_traceback(measured, monkeypatch):
    monkeypatch.delenv("WANBENCH_TRACEBACK", raising=False)
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    measured[0].outcome = KeyError("oops")
    line = (
        "wanbench: internal error: KeyError: 'oops'; please report it with the traceback, which WANBENCH_TRACEBACK=1 "
        "shows"
    )
    assert refused("run", "smoke", code=70) == line
    monkeypatch.setenv("WANBENCH_TRACEBACK", "1")
    text = refused("run", "smoke", code=70)
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith(f"\nKeyError: 'oops'\n{line}")
    assert "hunter2" not in text


@pytest.mark.parametrize("command", ["--help", "list columns"])
def test_a_reader_that_ends_does_not_change_the_exit_code(command):
    piped = f"set -o pipefail; {sys.executable} -m wanbench.harness.cli {command} | true"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_setting_what_the_sweep_sets_is_refused_instead_of_ignored():
    assert refused("plan", "latency-sweep", "--set", "network.rtt=5ms") == (
        "wanbench: --set network.rtt=...: latency-sweep sweeps this key; add --drop sweep.rtt, or use --only rtt=VALUE "
        "or --set 'sweep.rtt=[...]'"
    )
