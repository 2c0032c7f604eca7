"""The first command of every user, in containers: its results, and the privileges of the containers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_session import CARRIED, by_numbers

from wanbench.harness.testbeds.docker.daemon import OWNER_LABEL, RUN_LABEL

pytestmark = pytest.mark.timed

SPEC = by_numbers("steady", "ssgd = {}", window=100, run='testbed = "docker"', network=CARRIED)


@pytest.fixture(scope="module")
def rows(shared_bench):
    shared_bench.measure("smoke", "--testbed", "docker")
    return shared_bench.rows("smoke")


def test_every_row_is_valid_and_names_testbed_and_image(rows, api, image):
    digest = api.inspect_image(image)["Id"]
    assert len(rows) == 5
    for row in rows:
        assert (row["status"], row["testbed"], row["image"]) == ("ok", "docker", digest)


def test_step_times_are_within_15_percent_of_the_law(rows):
    for row in rows:
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15), row["cell"]


def test_no_container_is_left(rows, shared_bench):
    assert shared_bench.containers() == []


def test_tcp_is_configured_as_in_the_spec(rows, shared_bench):
    for path in (shared_bench.folder / "out/smoke").glob("cells/*-w2-*/rep-0/network.json"):
        tcp = json.loads(path.read_text())["tcp"]
        assert (tcp["tcp_congestion_control"], tcp["tcp_slow_start_after_idle"]) == ("reno", "0")


@pytest.fixture(scope="module")
def running(shared_bench):
    """Return a run whose two workers train, and their containers."""
    shared_bench.spec(SPEC)
    command = shared_bench.start("run", "spec.toml", "--out", "out", "--no-figures")
    command.until(lambda: len(shared_bench.training("ssgd")) == 2)
    yield command, shared_bench.training("ssgd").values()
    assert command.wait().code == 0


def test_containers_carry_their_run_and_its_owner(running):
    command, containers = running
    assert len(containers) == 2
    (run,) = {container["Config"]["Labels"][RUN_LABEL] for container in containers}
    assert [path.name for path in command.temp.iterdir()] == [run]
    for container in containers:
        assert container["Name"].startswith(f"/{run}-")
        assert json.loads(container["Config"]["Labels"][OWNER_LABEL])["pid"] == command.process.pid


def test_a_running_worker_has_no_privileges(running):
    for container in running[1]:
        lines = Path(f"/proc/{container['State']['Pid']}/status").read_text().splitlines()
        status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
        assert status["Uid"] == status["Gid"] == ["65532"] * 4 if os.getuid() == 0 else [str(os.getuid())] * 4
        assert {status[name][0] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0000000000000000"}
        assert status["NoNewPrivs"] == ["1"]


def test_a_container_gets_only_the_privileges_that_its_worker_needs_at_its_start(running):
    for container in running[1]:
        host = container["HostConfig"]
        assert (host["Privileged"], host["NetworkMode"], host["PidMode"], host["IpcMode"]) == (
            False, "none", "", "private",
        )  # fmt: skip
        assert host["CapDrop"] == ["ALL"]
        assert host["CapAdd"] == ["NET_ADMIN", "SETUID", "SETGID"]
        assert [device["PathInContainer"] for device in host["Devices"]] == ["/dev/net/tun"]
