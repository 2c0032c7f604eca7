"""`wanbench run --testbed docker`: the privileges of its containers, and their owner."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_session import by_numbers

from wanbench.harness.testbeds.docker.daemon import OWNER_LABEL, RUN_LABEL

SPEC = by_numbers("steady", "ssgd = {}", window=100)


@pytest.fixture(scope="module")
def running(shared_bench):
    """Return a run whose two workers train, and their containers."""
    shared_bench.spec(SPEC)
    command = shared_bench.start("run", "spec.toml", "--testbed", "docker", "--out", "out", "--no-figures")
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
