"""After a bad repetition the reason names who failed and how, and the run continues."""

from __future__ import annotations

import os
import signal
import time

import pytest
from cli_session import IMPATIENT, by_numbers

MINE = """
import resource
from dataclasses import dataclass
from threading import Event

import torch

from wanbench import Delayed


@dataclass
class Raising(Delayed):
    def stepped(self):
        if self.replica.comm.rank == 1 and self.replica.step == 5:
            raise ArithmeticError("the sky is falling")
        super().stepped()


@dataclass
class Waiting(Delayed):
    def stepped(self):
        if self.replica.comm.rank == 1 and self.replica.step == 5:
            Event().wait()  # forever
        super().stepped()


@dataclass
class Greedy(Delayed):
    def stepped(self):
        if self.replica.comm.rank == 1 and self.replica.step == 5:
            in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), resource.RLIM_INFINITY))
            torch.zeros(64 << 20)  # 256 MiB
        super().stepped()
"""
ALGORITHMS = """
killed    = { kind = "ssgd" }
stopped   = { kind = "ssgd" }
relayless = { kind = "ssgd" }
frozen    = { kind = "ssgd" }
raising   = { kind = "mine:Raising", delay = 1 }
waiting   = { kind = "mine:Waiting", delay = 1 }
greedy    = { kind = "mine:Greedy", delay = 1 }
spared    = { kind = "ssgd" }
"""
RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
FAILING = {"killed", "stopped", "relayless", "frozen", "raising-d1", "waiting-d1", "greedy-d1"}


@pytest.fixture(scope="module")
def unlucky(shared_bench):
    """Run while workers and relays are killed and stopped, with broken algorithms."""
    bench = shared_bench
    bench.spec(by_numbers("unlucky", ALGORITHMS, window=200))
    (bench.folder / "mine.py").write_text(MINE)
    command = bench.start(*RUN, program=IMPATIENT)
    todo = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
    todo |= {"relayless": signal.SIGKILL, "frozen": signal.SIGSTOP}
    while todo:
        name, worker = command.until(lambda: [(n, p) for n in todo if (p := command.training(n, rank=1))])[0]
        time.sleep(0.3)
        victim = command.relays()[0] if name in ("relayless", "frozen") else worker
        os.kill(victim, todo.pop(name))
    result = command.wait()
    return result, bench.rows("unlucky"), command


@pytest.fixture(scope="module")
def reasons(unlucky):
    return {row["algorithm"]: row["reason"] for row in unlucky[1]}


def test_the_run_continues_and_lists_the_failures_at_its_end(unlucky):
    result, rows, _ = unlucky
    assert {row["algorithm"] for row in rows if row["status"] == "failed"} == FAILING
    assert {row["algorithm"] for row in rows if row["status"] == "ok"} == {"one-worker", "spared"}
    assert result.code == 4
    assert result.out == "out/unlucky\n"
    assert result.last_line.startswith("wanbench: 7 repetitions have no valid result")
    assert all(name in result.last_line for name in FAILING)


def test_a_killed_worker_is_named_with_its_signal(reasons):
    assert reasons["killed"] == "worker 1 was killed by SIGKILL"


def test_a_stopped_worker_is_found_after_the_time_that_the_prediction_allows(reasons):
    # 5 s of patience, and ten steps of 30 ms with ten all-reduces of 10 ms.
    assert reasons["stopped"] == "hung: no message from any worker for 5 s; stopped by a signal: worker 1"


def test_a_killed_relay_is_named_with_its_signal(reasons):
    assert reasons["relayless"] == "relay: the process was killed by SIGKILL"


def test_a_stopped_relay_is_named(reasons):
    assert reasons["frozen"] == "hung: no message from any worker for 5 s; stopped by a signal: relay"


def test_a_worker_that_runs_out_of_memory_reports_it(reasons):
    assert reasons["greedy-d1"].startswith("worker 1: RuntimeError: ")
    assert "can't allocate memory: you tried to allocate 268435456 bytes" in reasons["greedy-d1"]
    assert "\n" not in reasons["greedy-d1"]


def test_an_algorithm_that_raises_is_shown_with_its_last_lines(unlucky, reasons):
    result = unlucky[0]
    assert reasons["raising-d1"] == "worker 1: ArithmeticError: the sky is falling"
    assert "worker-1: ArithmeticError: the sky is falling" in result.err
    assert '/mine.py", line 15, in stepped' in result.err


def test_an_algorithm_that_waits_forever_is_shown_where_it_waits(unlucky, reasons):
    result = unlucky[0]
    assert reasons["waiting-d1"] == "hung: no message from any worker for 5 s"
    assert 'worker-1:   File "' in result.err
    assert '/mine.py", line 23 in stepped' in result.err


def test_nothing_of_the_failed_workers_and_relays_is_left(unlucky):
    command = unlucky[-1]
    assert len(command.namespaces) >= 2
    assert command.left_nothing()
