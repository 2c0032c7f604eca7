"""`wanbench exec --testbed docker`: the user's program in containers, with its files."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import exec_claims
import host_image
import pytest

DOCKER = ["--testbed", "docker"]
PYTHON = ["python3"]  # the user of the image
_HOST_IMAGE = f"import sys; sys.path.insert(0, {str(Path(host_image.__file__).parent)!r}); import host_image"
TWO = ["exec", "--profile", "uniform", "--rtt", "20ms", "-n", "2", *DOCKER]


@pytest.fixture(autouse=True)
def _readable(bench):
    """Let every user read the folder, because the containers run as another user."""
    bench.folder.chmod(0o755)


@pytest.mark.timed
@pytest.mark.long  # the test in namespaces runs each time
def test_an_unchanged_data_parallel_script_runs_across_four_regions(bench, api, image):
    row = exec_claims.a_data_parallel_script_runs_unchanged(bench, DOCKER, PYTHON)
    assert (row["testbed"], row["image"]) == ("docker", api.inspect_image(image)["Id"])
    assert bench.containers() == []


@pytest.mark.timed
@pytest.mark.long  # the test in namespaces runs each time
def test_programs_see_the_round_trips_and_the_rate_of_the_profile(bench):
    exec_claims.programs_see_the_round_trips_and_the_rate_of_the_profile(bench, DOCKER, PYTHON)


def test_a_script_in_an_image_gets_the_process_group_in_place_of_gloo(bench):
    exec_claims.take(bench, "ddp.py")
    result = bench.run(*TWO, "--collective", "direct", "--", *PYTHON, "ddp.py")
    assert result.code == 0, result.err
    steps, totals = zip(*re.findall(r"step ([\d.]+) sum (\S+)", result.out), strict=True)
    assert len(totals) == 2
    assert len(set(totals)) == 1
    assert max(map(float, steps)) > 0.010  # half a round trip
    assert exec_claims.row_of(result, bench)["collective"] == "direct"


def test_a_worker_killed_by_the_timeline_restarts_and_the_others_continue(bench):
    exec_claims.a_killed_worker_restarts_on_the_same_network_and_the_others_continue(bench, DOCKER, PYTHON)
    assert bench.containers() == []


def test_an_image_that_is_not_here_is_reported_in_one_line(bench):
    missing = bench.run(*TWO, "--image", "no-such-image:1", "--", "true")
    assert missing.code == 3
    assert missing.err == "wanbench: docker: no image 'no-such-image:1' on this host; docker pull no-such-image:1\n"


WRITES = "for file in here /data/made /out/made; do echo x >$file || echo $file refused; done; cat mine /data/read"


def test_the_current_folder_is_readable_and_a_mount_is_writable_if_configured(bench, tmp_path):
    data, out = tmp_path / "its-data", tmp_path / "its-results"
    for folder in (data, out):
        folder.mkdir()
        folder.chmod(0o777)
    (data / "read").write_text("was read\n")
    (bench.folder / "mine").write_text("mine\n")
    mounts = ("--mount", f"{data}:/data", "--mount", f"{out}:/out:rw")
    result = bench.run(*TWO, *mounts, "--", "sh", "-c", WRITES)
    assert result.out.count("] mine") == result.out.count("was read") == 2
    assert result.out.count("] here refused") == result.out.count("] /data/made refused") == 2
    assert "/out/made refused" not in result.out
    assert (out / "made").read_text() == "x\n"
    assert not (bench.folder / "here").exists()
    assert not (data / "made").exists()


def test_a_program_missing_from_the_image_is_reported_in_one_line(bench):
    result = bench.run(*TWO, "--", "no-such-program")
    assert result.code == 2
    assert re.fullmatch(
        r"wanbench: worker \d: no-such-program: No such file or directory; it must be in the image or in a mounted "
        r"folder: the current one, or one given with --mount",
        result.last_line,
    )
    assert bench.containers() == []


LOOK = """
env
pwd
ls mine 2>/dev/null || echo mine is not there
grep -E '^(Uid|CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs):' /proc/self/status
echo devices: $(ls /sys/class/net)
"""


@pytest.fixture(scope="module")
def named(shared_bench, api, image):
    """Return the result of a program in a container of a named image, which has a working folder."""
    bench, name = shared_bench, f"{image}-named"
    bench.folder.chmod(0o755)
    (bench.folder / "mine").touch()
    api.tag(image, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANBENCH_IMAGE")
        patch.setenv("SECRET", "token")
        patch.setenv("ASKED", "for")
        options = ["--image", name, "--env", "ASKED", "--env", "GIVEN=value", "--workdir", "/tmp"]
        result = bench.run(*TWO, *options, "--", "sh", "-c", LOOK)
    api.remove_image(name)
    assert result.code == 0, result.err
    return result


@pytest.fixture(scope="module")
def seen(named, shared_bench):
    """Return what the program finds there."""
    return (exec_claims.run_folder(named, shared_bench) / "rank-0.log").read_text().splitlines()


def test_the_named_image_is_used(named, shared_bench, api, image):
    row = exec_claims.row_of(named, shared_bench)
    network = json.loads((exec_claims.run_folder(named, shared_bench) / "network.json").read_text())
    assert network["tcp"]["tcp_congestion_control"] == "cubic"
    assert row["image"] == api.inspect_image(image)["Id"]


def test_the_environment_is_that_of_the_image_plus_requested_variables(seen):
    mine = dict(line.split("=", 1) for line in seen if "=" in line)
    assert (mine["ASKED"], mine["GIVEN"], mine["HOME"], mine["PATH"]) == ("for", "value", "/tmp", host_image.PATH)
    assert "SECRET" not in mine
    assert (mine["RANK"], mine["NCCL_SOCKET_IFNAME"], mine["NCCL_NET"]) == ("0", "wan0", "Socket")


def test_with_a_working_folder_of_the_image_the_current_one_is_not_mounted(seen):
    assert "/tmp" in seen
    assert "mine is not there" in seen


def test_a_program_in_a_container_has_only_the_rights_of_a_user(seen):
    status = {name: values.split() for name, colon, values in (line.partition(":") for line in seen) if colon}
    user = "65532" if os.getuid() == 0 else str(os.getuid())
    assert status["Uid"] == [user] * 4
    assert {status[name][0] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == ["1"]
    assert {"lo", "wan0"} <= set(status["devices"])
    assert "eth0" not in status["devices"]


def test_a_signal_is_passed_on_and_only_the_user_and_the_workers_can_read_shared_files(bench):
    trapping = "trap 'echo got it; exit 0' INT TERM; echo up; while :; do sleep 0.1; done"
    command = bench.start(*TWO, "--rendezvous", "local", "--", "sh", "-c", trapping)
    command.until(lambda: _logs(bench).count("up") == 2)
    (control,) = command.temp.glob("wanbench-*")
    root = os.getuid() == 0
    assert control.stat().st_mode & 0o7777 == (0o1770 if root else 0o700)
    assert (control / "workers.sock").stat().st_mode & 0o777 == (0o660 if root else 0o600)
    assert control.stat().st_gid == (control / "workers.sock").stat().st_gid == (65532 if root else os.getgid())
    (door,) = control.glob("*-door")
    assert door.stat().st_mode & 0o777 == 0o600
    command.process.send_signal(signal.SIGINT)
    result = command.wait()
    assert result.code == 128 + signal.SIGINT
    assert result.out.count("got it") == 2
    assert bench.containers() == []


def test_a_killed_harness_leaves_no_container(bench):
    command = bench.start(*TWO, "--", "sh", "-c", "setsid sleep 1003 & echo up; sleep 1004")
    command.until(lambda: _logs(bench).count("up") == 2)
    command.process.kill()
    command.process.wait()
    deadline = time.monotonic() + 60
    while bench.containers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert bench.containers() == []


def test_a_daemon_without_support_for_gpus_is_reported_in_one_line(bench, monkeypatch):
    """Fake the host's GPUs; the daemon really cannot give them to a container."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this host has GPUs")
    (bench.folder / "gpus" / "0000:01:00.0").mkdir(parents=True)
    made_up = "import pathlib, wanbench.harness.rep.program as g; "
    made_up += f"g.assign_gpus.__defaults__ = (pathlib.Path({str(bench.folder)!r}, 'gpus'),)"
    program = [sys.executable, "-c", f"{_HOST_IMAGE}; {made_up}; host_image.main()"]
    result = bench.run(*TWO, "--device", "cuda", "--", "true", program=program)
    assert result.code == 3
    assert result.last_line == (
        "wanbench: docker: the daemon has no support for GPUs: install nvidia-container-toolkit, then `sudo nvidia-ctk "
        "runtime configure --runtime=docker` and `sudo systemctl restart docker`"
    )
    assert bench.containers() == []


def _logs(bench):
    return bench.written("results/exec-*/cells/*/rep-*/rank-*.log")
