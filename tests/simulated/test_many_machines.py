"""Processes on any number of hosts measure one run, by hand and as the files of examples/many-machines start them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_session import SOON_S, by_numbers
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from journals import journals, measures, published_once
from test_ci_examples import parsed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "many-machines"
ALGORITHMS = "ssgd = {}\ndts = { delay = 4, period = 2 }"


def spec(window: int, repeats: int) -> str:
    """Return a spec of four cells and a one-worker cell, simulated."""
    text = by_numbers("shared", ALGORITHMS, '["10ms", "40ms"]', window, run='testbed = "virtual"')
    return text.replace("repeats = 1", f"repeats = {repeats}")


def of(command, run: Path) -> list[dict[str, Any]]:
    """Return what a command has done in a run so far."""
    return next((events for name, events in journals(run).items() if f"-{command.process.pid}-" in name), [])


# ---------------------------------------------------------------- by hand


@pytest.mark.long  # killed runs, and several machines, are tested apart each time
def test_whoever_is_killed_the_others_finish_each_repetition_once(bench):
    path, run = bench.folder / bench.spec(spec(1200, repeats=3)), bench.out / "shared"
    first = bench.start("run", str(path), "--out", "out", "--jobs", "1", "--no-figures")
    first.until((run / "manifest.json").is_file)
    killed, helper = (bench.start("work", "shared", "--out", "out", "--jobs", "1") for _ in range(2))
    killed.until(lambda: measures(of(killed, run)))
    killed.process.kill()
    fresh = refused("run", str(path), "--out", str(bench.out), "--fresh", code=3)
    assert fresh.startswith(f"wanbench: {run}: another process (")
    assert fresh.endswith(") is measuring here, so --fresh is refused; wait for it, or use --out")
    joined = wanbench("run", str(path), "--out", str(bench.out), "--jobs", "1", "--no-figures")
    assert joined.exit_code == 0
    assert killed.wait().code == -signal.SIGKILL
    for command in (first, helper):
        result = command.wait()
        assert (result.code, result.out) == (0, "out/shared\n"), result.err
    assert published_once(run, 15, killed=1)
    assert len(journals(run)) == 4


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the folder of a finished run."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "spec.toml").write_text(spec(20, repeats=1))
    assert wanbench("run", str(folder / "spec.toml"), "--out", str(folder), "--no-figures").exit_code == 0
    return folder / "shared"


@pytest.fixture
def run(small, tmp_path):
    return Path(shutil.copytree(small, tmp_path / "shared"))


@pytest.fixture
def undrawn(monkeypatch):
    """Draw no figures at the end of `work`."""
    monkeypatch.setattr("wanbench.harness.show.figures.draw_all", lambda _, __, folder, **___: folder.mkdir())


def edit(path: Path, change) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_work_measures_what_is_missing_and_tries_nothing_again_that_failed(run, undrawn):
    before = {path: path.stat().st_mtime_ns for path in run.glob("cells/*/rep-0/result.json")}
    missing, failed, *_ = sorted(before)
    shutil.rmtree(missing.parent)
    row = json.loads(failed.read_text()) | {"status": "failed", "reason": "it broke"}
    failed.with_name("error.json").write_text(json.dumps({"row": row}))
    failed.unlink()
    failed.parent.rename(failed.parent.with_name("rep-0.failed-1"))
    result = wanbench("work", str(run))
    assert (result.exit_code, result.stdout) == (4, f"{run}\n")
    expected = "wanbench: 1 repetition has no valid result; `wanbench run` with the spec tries again"
    assert result.stderr.splitlines()[-1] == expected
    after = {path: path.stat().st_mtime_ns for path in run.glob("cells/*/rep-0/result.json")}
    assert after.keys() == before.keys() - {failed}
    assert [path for path in after if after[path] != before[path]] == [missing]


def test_work_needs_a_run(tmp_path):
    expected = f"wanbench: nothing: not a run folder, and no run of that name under {tmp_path} (there: none)"
    assert refused("work", "nothing", "--out", str(tmp_path)) == expected


def test_work_refuses_the_plan_of_a_version_that_makes_other_cells(run):
    plan = run / "spec.resolved.json"
    edit(plan, lambda data: data["cells"][0].update(key="0" * 64))
    assert refused("work", str(run)) == (
        f"wanbench: {plan}: this version of wanbench makes other cells from this spec; use the version that wrote the "
        "file, or `wanbench run` with the spec"
    )


def test_a_host_with_other_code_is_refused_even_if_nothing_is_finished(run, undrawn):
    shutil.rmtree(next(run.glob("cells/ssgd*")))
    edit(run / "manifest.json", lambda data: data.update(code={"wanbench itself": "0123456789ab"}))
    assert refused("work", str(run)) == (
        f"wanbench: {run}: this run began with other code or data than this host has (wanbench itself); install the "
        "same versions of wanbench and torch, and copy the same files; --keep measures nevertheless"
    )
    assert wanbench("work", str(run), "--keep").exit_code == 0


# ---------------------------------------------------------------- the examples


@pytest.fixture
def stub(bench, monkeypatch):
    """Return a function that puts a script of sh on the path, beside the real `wanbench`."""
    folder = bench.folder / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]))

    def write(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)

    return write


# A host that is this one by another name, if this user may give it one. It ends the command as a lost terminal does.
SSH = """
while [ "${1#-}" != "$1" ]; do shift; done
named="unshare --uts sh -c 'hostname $1 && exec sh -c \\"\\$0\\"'"
unshare --uts true 2>/dev/null || named="sh -c"
eval exec setsid "$named" '"$2"' &
there=$!
trap 'kill -HUP -$there' TERM
wait $there
"""


@pytest.mark.long  # without ssh, workers that end and continue are tested each time
def test_over_ssh_one_ctrl_c_ends_all_and_the_same_command_continues(bench, stub):
    stub("ssh", SSH)
    bench.spec(spec(1500, repeats=2))
    script, run = ["sh", str(EXAMPLES / "ssh.sh")], bench.folder / "results" / "shared"
    interrupted = bench.start("spec.toml", "far", program=script)
    interrupted.until(lambda: len(journals(run)) == 2)
    os.killpg(interrupted.process.pid, signal.SIGINT)
    assert interrupted.wait(SOON_S).code == 130
    assert interrupted.left_nothing()
    done = bench.run("spec.toml", "far", program=script)
    assert (done.code, done.out) == (0, "results/shared\n"), done.err
    assert published_once(run, 10)
    hosts = {name.partition("-")[0] for name in journals(run)}
    assert os.geteuid() != 0 or hosts == {os.uname().nodename.partition(".")[0], "far"}


def test_every_task_of_a_slurm_array_is_the_same_command(bench, stub):
    script = EXAMPLES / "slurm.sh"
    assert "#SBATCH --array=" in script.read_text()
    stub("srun", 'echo "$*"')
    done = bench.run("spec.toml", program=["sh", str(script)])
    assert (done.code, done.out) == (0, "wanbench run spec.toml\n")


def test_a_ray_cluster_is_started_on_all_hosts_and_ends_with_the_run(bench, stub):
    stub("ssh", 'echo "ssh $*" >>log; exec sleep 100')
    stub("ray", 'echo "ray $*" >>log; [ "$1" = status ] || exec sleep 100')
    all_started = '[ "$(grep -c "^ssh\\|^ray start" log)" = 3 ]'  # they start in any order
    stub("wanbench", f'until {all_started}; do sleep 0.1; done; echo "wanbench $*" >>log')
    stub("hostname", "echo 192.0.2.1 10.0.0.1")
    command = bench.start("spec.toml", "one", "two", program=["sh", str(EXAMPLES / "ray.sh")])
    assert command.wait(SOON_S).code == 0
    ray = bench.folder / "bin" / "ray"
    lines = (bench.folder / "log").read_text().splitlines()
    assert "ray start --head --port 6379 --include-dashboard=false --block" in lines
    assert {line for line in lines if line.startswith("ssh")} == {
        f"ssh -qtt {host} '{ray}' start --address '192.0.2.1:6379' --block" for host in ("one", "two")
    }
    assert lines[-1] == "wanbench run spec.toml --engine ray --address 192.0.2.1:6379"
    parsed(lines[-1].split()[1:])
    assert command.left_nothing()


def test_every_pod_of_a_kubernetes_job_is_the_same_command():
    job = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, *words = container["command"]
    assert program == "wanbench"
    parsed(words)
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    assert words[:2] == ["run", f"{mounted['spec']}/spec.toml"]
    assert words[words.index("--out") + 1] == mounted["results"]
