"""docker-compose.yml as its users start it: a controller in a container, and workers that it adopts."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import host_image
import pytest
from cli_session import TOLERANT, by_numbers
from docker.errors import NotFound

from wanbench.harness.api import Run
from wanbench.harness.run.host import SWITCH

CALLER = 1234 if os.getuid() == 0 else os.getuid()
WORKERS = ("oregon", "ohio", "london", "tokyo")


@pytest.fixture(scope="session")
def compose_command() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    if "docker" in os.environ.get("WANBENCH_REQUIRE", "").split(","):
        pytest.fail("these tests must run here, and there is no docker compose: sudo apt-get install docker-compose")
    pytest.skip("no docker compose: sudo apt-get install docker-compose")


class Project:
    """A folder of the caller with docker-compose.yml, the host's files in the containers, and a tolerant `wanbench`."""

    def __init__(self, folder: Path, command: list[str], image: str, default: list[str]) -> None:
        self.folder = folder
        shutil.copy(host_image.CHECKOUT / "docker-compose.yml", folder)
        tolerant = folder / "bin"
        tolerant.mkdir()
        (tolerant / "wanbench").write_text(f'#!/bin/sh\nexec {shlex.join(TOLERANT)} "$@"\n')
        (tolerant / "wanbench").chmod(0o755)
        files = [f"{path}:{path}:ro" for path in host_image.mounted()]
        service = {"image": image, "volumes": files}
        controller = {
            "image": image,
            "volumes": [*files, f"{tolerant}:{tolerant}:ro"],
            "entrypoint": ["sh", str(host_image.CHECKOUT / "scripts/docker-controller.sh")],
            "command": default,
            "working_dir": "/work",
            # As in all tests that make no claim about time, it does not take its turn on this host.
            "environment": {"HOME": "/tmp", "PATH": f"{tolerant}:{host_image.PATH}", SWITCH: "off"},
        }
        worker = {**service, "entrypoint": ["python3", "-m", "wanbench.workloads.process.container"]}
        override = {"services": {**dict.fromkeys(WORKERS, worker), "wanbench": controller}}
        (folder / "override.json").write_text(json.dumps(override))
        os.chown(folder, CALLER, -1)
        self._base = [*command, "-p", f"wb{os.getpid()}", "-f", "docker-compose.yml", "-f", "override.json"]

    def __call__(self, *arguments: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._base, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._base, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def spec(self, text: str) -> str:
        (self.folder / "spec.toml").write_text(text)
        return "spec.toml"

    def close(self) -> None:
        self("down", "--volumes", "--remove-orphans", "--timeout", "1")


@pytest.fixture
def project(tmp_path, compose_command, image, api):
    (tmp_path / "project").mkdir()
    here = Project(
        tmp_path / "project",
        compose_command,
        image,
        [
            "run",
            "world4",
            "--only",
            "workers=4",
            "--only",
            "algorithm=ssgd",
            "--set",
            "run.repeats=1",
            "--set",
            "run.window=10 steps",
        ],
    )
    yield here
    here.close()


def until(what, timeout_s: float = 60):
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
    return found


def statuses(api) -> dict[str, str]:
    """Return the state of every worker's container, by service."""
    found = api.containers(all=True, filters={"label": "com.docker.compose.oneoff=False"})
    return {c["Labels"]["com.docker.compose.service"]: c["Status"].partition(")")[0] for c in found}


def test_up_ends_with_the_figure_of_world4_and_files_owned_by_the_caller(project, api):
    done = project("up", "--no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = list(project.folder.glob("results/world4/figures/*.svg"))
    assert figures, done.stdout + done.stderr
    everything = [project.folder / "results", *project.folder.glob("results/**/*")]
    assert {path.stat().st_uid for path in everything} == {CALLER}
    until(lambda: set(statuses(api).values()) == {"Exited (0"}, timeout_s=10)
    rows = [json.loads(path.read_text()) for path in project.folder.glob("results/world4/cells/*/rep-0/result.json")]
    assert {(row["workers"], row["status"], row["testbed"]) for row in rows} == {
        (1, "ok", "docker"),
        (4, "ok", "docker"),
    }
    # Each worker was in the container of its site.
    assert "tokyo" in done.stdout


@pytest.mark.long  # the next test has an exit code each time
def test_run_returns_the_exit_code_of_wanbench(project, api):
    project.spec("schema = 3")
    assert project("run", "--rm", "wanbench", "run", "spec.toml").returncode == 2
    project.spec(by_numbers("mine", "ssgd = {}").replace("workers = [2]", "workers = [5]"))
    done = project("run", "--rm", "wanbench", "run", "spec.toml", "--no-figures")
    assert done.returncode == 3
    assert (
        "wanbench: a cell needs 5 workers, and 4 containers have reported; start more, such as: "
        "docker compose up --scale oregon=2, or keep to smaller cells with --only workers=..."
    ) in done.stdout + done.stderr


def training(api, rank: int) -> dict | None:
    """Return the container of the worker that writes the log of this rank."""
    for container in api.containers():
        with contextlib.suppress(OSError, NotFound):
            pid = api.inspect_container(container["Id"])["State"]["Pid"]
            if os.readlink(f"/proc/{pid}/fd/1").endswith(f".part/worker-{rank}.log"):
                return container
    return None


@pytest.mark.long  # test_docker_failures has a worker that ends, and CI kills the controller of a composition
def test_a_worker_that_ends_fails_its_cell_and_restarts_for_the_rest(project, api):
    project.spec(by_numbers("unlucky", "ssgd = {}\ndelayed = { delay = 2 }", window=100))
    running = project.start("run", "--rm", "wanbench", "run", "spec.toml", "--no-figures", "--out", "out")
    victim = until(lambda: training(api, 1))
    time.sleep(0.3)
    api.restart(victim["Id"], timeout=0)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 4, err
    rows = Run.open("unlucky", project.folder / "out").rows()
    site = victim["Labels"]["com.docker.compose.service"]
    failed = [row for row in rows if row["status"] == "failed"]
    assert [row["reason"] for row in failed] == [
        f"worker 1 ended with its container {site}: docker compose ps --all shows how"
    ]
    assert all(row["step_time_s"] for row in rows if row not in failed)
    assert len(rows) == 3


def test_workers_end_if_the_controller_is_killed(project, api):
    project.spec(by_numbers("killed", "ssgd = {}", window=500))
    running = project.start("run", "--rm", "wanbench", "run", "spec.toml", "--no-figures", "--out", "out")
    until(lambda: list(project.folder.glob("out/killed/cells/*-w2-*/rep-0.*part/worker-1.log")))
    (controller,) = api.containers(filters={"label": "com.docker.compose.oneoff=True"})
    api.kill(controller["Id"])
    running.communicate(timeout=30)
    until(lambda: set(statuses(api).values()) == {"Exited (0"}, timeout_s=10)
