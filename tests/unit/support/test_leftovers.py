"""The snapshots with which crash tests compare hosts show every change that they must show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from leftovers import Snapshot, alive, started_with

# Each command runs in its own network and mount namespaces, so it does not change the host.
CHANGES = {
    "ip link add left0 type dummy || ip link add left0 type veth peer name left1": "devices: left0: number ",
    "ip link set lo mtu 1400": "devices: lo: number 1, MTU 1400, flags ",
    "echo 77 >/proc/sys/net/ipv4/ip_default_ttl": "sysctls: /proc/sys/net/ipv4/ip_default_ttl: 77, before 64",
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/left": "named_namespaces: left: , before absent",
}
COMPARE = """
import subprocess, sys
from leftovers import Snapshot
before = Snapshot.take()
assert Snapshot.take().changes(before) == []
subprocess.run(["sh", "-ec", sys.argv[1]], check=True)
print(*Snapshot.take().changes(before), sep="\\n")
"""


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_shows_what_changed_on_a_host(change):
    if os.geteuid() != 0:
        pytest.skip("only root can change the host")
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", COMPARE, change],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path(leftovers.__file__).parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any(line.startswith(CHANGES[change]) for line in done.stdout.splitlines()), done.stdout


def test_two_snapshots_of_an_unchanged_host_are_equal():
    assert Snapshot.take().changes(Snapshot.take()) == []


def test_a_process_is_found_by_its_environment_in_any_session():
    command = ["setsid", "--fork", "sh", "-c", "echo $$; read never"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    done = subprocess.Popen(command, **pipes, text=True, env={**os.environ, "LEFT": "behind"})
    pid = int(done.stdout.readline())
    done.stdout.close()
    done.wait()
    assert started_with("LEFT=behind") == {pid}
    os.kill(pid, 9)
    done.stdin.close()
    while alive(pid):
        pass
    assert started_with("LEFT=behind") == set()
