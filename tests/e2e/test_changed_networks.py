"""A network that does not stay as it was set makes the repetition invalid, with the first difference in words.

Somebody with rights acts in the namespace of a worker while it runs a program, or trains. Kept as it was, it is valid.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nobody
import pytest
from cli_session import WANBENCH, Bench
from nobody import NOBODY
from on_relay import expand

from wanbench.harness.rep.fidelity import CHANGED
from wanbench.harness.rep.measure import measure
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.netns import NetnsTestbed

WAITING = 'touch "$READY-$RANK"; until [ -e "$READY-done" ]; do sleep 0.02; done'
PROGRAM = {
    "schema": 1, "name": "program", "network": {"profile": "world4"}, "workload": {"command": ["sh", "-c", WAITING]},
    "sweep": {"workers": [2]}, "run": {"testbed": "netns", "emulator": "relay"},
}  # fmt: skip
TRAINING = {
    "schema": 1, "name": "training", "workload": {"params": 1000, "step_time": "50ms"},
    "algorithms": {"ssgd": {}}, "sweep": {"workers": [2], "rtt": ["10ms"]},
    "run": {"testbed": "netns", "emulator": "relay", "window": "100 steps"},
}  # fmt: skip
WAN0 = "wan0 of worker 1 (ohio): "
SYSCTL = "the namespace of worker 1 (ohio): /proc/sys/net/ipv4/"
SUBNET = "10.99.0.0/16 dev wan0 proto kernel scope link src 10.99.0.2"
ACTS = {
    "tc qdisc add dev wan0 root tbf rate 8mbit burst 10kb latency 200ms": f"{WAN0}qdisc tbf, at the start ",
    "tc qdisc add dev lo root pfifo": "lo of worker 1 (ohio): qdisc pfifo, at the start noqueue",
    "ip link set wan0 mtu 1400": f"{WAN0}device up with MTU 1400, at the start up with MTU 1500",
    "ip link set wan0 down": f"{WAN0}device down or gone, at the start up with MTU 1500",
    "ip addr del 10.99.0.2/16 dev wan0": f"{WAN0}address none, at the start 10.99.0.2/16",
    f"ip route change {SUBNET} congctl cubic": f"{WAN0}route 10.99.0.0/16, at the start with other values",
    f"ip route change {SUBNET} window 4000": f"{WAN0}route 10.99.0.0/16, at the start with other values",
    "ip route add 10.99.0.9 dev wan0 initcwnd 2": f"{WAN0}route 10.99.0.9/32, at the start none",
    "ip route add blackhole 10.98.0.0/16": "the namespace of worker 1 (ohio): route 10.98.0.0/16, at the start none",
    "echo 4096 5000 6000 >/proc/sys/net/ipv4/tcp_rmem": f"{SYSCTL}tcp_rmem 4096 5000 6000, at the start 4096 131072 ",
    "echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle": f"{SYSCTL}tcp_slow_start_after_idle 0, at the start 1",
    "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save": None,  # as it was
}


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """Return one slot for all tests, so each also begins on the network that the one before has left."""
    testbed = NetnsTestbed(tmp_path_factory.mktemp("slot"))
    yield testbed.open_slot("relay")
    testbed.close()


def cell_of(spec):
    (cell,) = [cell for cell in expand(Spec.from_dict(spec), "x.toml") if cell.workers > 1]
    return cell


def repetition(spec, slot, folder, ready, act, worker):
    """Return the row of a repetition in which somebody acts in the network of a worker."""
    acted = threading.Thread(target=lambda: act_when(ready, slot, worker, act, folder / "ready-done"))
    acted.start()
    row = measure(cell_of(spec).repetition(0), slot, folder, folder, None)
    acted.join()
    return row


def act_when(ready, slot, worker, act, done):
    while not ready(slot):
        time.sleep(0.02)
    subprocess.run(["nsenter", "-t", str(slot._workers[worker].pid), "-n", "sh", "-ec", act], check=True)
    done.touch()


@pytest.mark.parametrize(("act", "words"), ACTS.items(), ids=list(ACTS))
def test_a_change_while_a_program_runs_makes_its_repetition_invalid(slot, tmp_path, monkeypatch, act, words):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    row = repetition(PROGRAM, slot, tmp_path, lambda _: len([*tmp_path.glob("ready-[01]")]) == 2, act, 1)
    if words is None:
        assert CHANGED not in (row["reason"] or "")
    else:
        assert row["status"] == "invalid"
        assert row["reason"].startswith(f"{CHANGED}: {words}")


def test_a_change_while_workers_train_makes_the_repetition_invalid_and_not_the_next(slot, tmp_path):
    def trains(slot):
        log = tmp_path / "worker-1.log"
        return log.exists() and slot.emulator.stats().packets > 100

    act = "tc qdisc add dev wan0 root tbf rate 80mbit burst 100kb latency 200ms"
    row = repetition(TRAINING, slot, tmp_path, trains, act, 1)
    assert row["status"] == "invalid"
    assert row["reason"].startswith(f"{CHANGED}: wan0 of worker 1 (w1): qdisc tbf, at the start ")
    row = measure(cell_of(TRAINING).repetition(1), slot, tmp_path, tmp_path, None)
    assert CHANGED not in (row["reason"] or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_a_program_that_changes_its_own_network_is_named():
    """Root's programs have no right to; those of a user do, because the namespace is the user's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    bench = Bench(folder)
    for name in ("out", "tmp"):
        (folder / name).mkdir()
        os.chown(folder / name, NOBODY, NOBODY)
    program = ["exec", "-n", "2", "--profile", "uniform", "--rtt", "5ms", "--out", "out", "--"]
    program += ["sh", "-c", "[ $RANK = 0 ] || ip link set wan0 mtu 1280"]
    result = bench.start(*program, program=[sys.executable, nobody.__file__, *WANBENCH]).wait()
    bench.close()
    shutil.rmtree(folder)
    assert result.code == 0
    words = f"{CHANGED}: wan0 of worker 1 (w1): device up with MTU 1280, at the start up with MTU 1500"
    assert f"warning: `verify` refuses these times: {words}" in result.err
    assert "; leave its network as it is and run it again" in result.err
