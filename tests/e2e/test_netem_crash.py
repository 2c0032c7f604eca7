"""With netem, too: its process or the run is killed, and nothing is left."""

from __future__ import annotations

import os
import signal

import pytest
from cli_session import by_numbers

pytestmark = pytest.mark.netem

# On one slow processor, a cell must last until the test has seen it.
SPEC = by_numbers("routed", "ssgd = {}\ndelayed = { delay = 2 }", window=200, run='emulator = "netem"')
RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")


@pytest.mark.long  # killed emulators and controllers are tested each time, in tests/kernel
def test_a_killed_netem_fails_its_cell_and_a_killed_run_leaves_no_router(bench):
    bench.spec(SPEC)
    command = bench.start(*RUN)
    training = {name: lambda name=name: command.training(name, rank=1) for name in ("ssgd", "delayed-d2")}
    command.until(lambda: any(find() for find in training.values()), timeout_s=200)
    (first,) = [name for name, find in training.items() if find()]
    (netem,) = command.children("wanbench.harness.emulators.netem.process")
    os.kill(netem, signal.SIGKILL)
    (second,) = training.keys() - {first}
    command.until(training[second], timeout_s=200)
    assert len(command.namespaces) > 2  # the workers' and the routers'
    command.process.kill()
    command.wait()
    assert command.left_nothing()
    rows = {row["algorithm"]: row for row in bench.rows("routed")}
    assert rows[first]["reason"] == "netem: the process was killed by SIGKILL"
    assert rows["one-worker"]["status"] == "ok"
