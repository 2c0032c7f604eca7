"""A daemon that restarts during a run fails the current cell; the run continues."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import host_image
import pytest
from cli_session import by_numbers
from docker import APIClient
from docker_bench import TOLERANT, DockerBench

from wanbench.harness.testbeds.docker.daemon import Daemon, DaemonGone

SPEC = by_numbers("restarted", "ssgd = {}\ndelayed = { delay = 2 }", window=80, run='testbed = "docker"')


class PrivateDaemon:
    """A private daemon for this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [
            "--host",
            self.address,
            "--group",
            "root",
            "--bridge",
            "none",
            "--iptables=false",
            "--ip-forward=false",
        ]
        for name, place in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
            words += [f"--{name}", str(self.folder / place)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["dockerd", *words], stdout=log, stderr=log)
        daemon = Daemon()
        daemon.address = self.address
        deadline = time.monotonic() + 30
        while True:
            try:
                daemon.info()
            except DaemonGone:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.2)
            else:
                break
        daemon.close()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None


@pytest.fixture
def private(tmp_path_factory, monkeypatch):
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a daemon can only be restarted as root: sudo make test-docker")
    daemon = PrivateDaemon(tmp_path_factory.mktemp("d"))
    daemon.start()
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    yield daemon
    daemon.stop()
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if line.split()[1].startswith(f"{daemon.folder}/"):
            subprocess.run(["umount", "-l", line.split()[1]], check=False)


@pytest.mark.long  # containers that are killed or removed are tested each time
def test_a_cell_whose_daemon_restarts_fails_and_the_rest_continues(private, tmp_path, monkeypatch):
    api = APIClient(base_url=private.address, version="auto")
    host_image.make(api, "wanbench-restart")
    monkeypatch.setenv("WANBENCH_IMAGE", "wanbench-restart")
    bench = DockerBench(tmp_path, api, "wanbench-restart")
    bench.program = TOLERANT
    bench.spec(SPEC)
    command = bench.start("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
    command.until(lambda: any(len(bench.training(name)) == 2 for name in ("ssgd", "delayed-d2")))
    time.sleep(0.3)
    private.stop()
    private.start()
    result = command.wait()
    assert result.code == 4, result.err
    rows = bench.rows("restarted")
    (reason,) = [row["reason"] for row in rows if row["status"] == "failed"]
    assert reason.startswith("worker ")
    assert "was killed by SIGTERM" in reason
    assert sum(row["status"] in ("ok", "invalid") for row in rows) == 2
    assert bench.containers() == []
    bench.close()
    api.close()
