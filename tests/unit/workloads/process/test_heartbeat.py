"""A heartbeat notices when its process or its program did not run, and mistakes nothing else for a pause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count

import pytest

from wanbench.workloads.process import heartbeat
from wanbench.workloads.process.heartbeat import (
    PAUSED,
    STOPPED,
    THROTTLED,
    Heartbeat,
    Losses,
    Lost,
    counter_files,
    swapped_ns,
    throttled_ns,
)

S = 1_000_000_000

# Says when its heartbeat has begun, does WORK, and prints what was lost and how long WORK took and computed.
_VICTIM = """
import json, sys, time
from wanbench.workloads.process.heartbeat import Heartbeat

heart = Heartbeat()
time.sleep(0.1)
print("ready", flush=True)
begin_ns, used = time.monotonic_ns(), time.process_time()
{work}
took = (time.monotonic_ns() - begin_ns) / 1e9, time.process_time() - used, begin_ns
print(json.dumps([heart.stop(), took]), flush=True)
"""


def victim(work: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _VICTIM.format(work=work)], stdout=subprocess.PIPE,
                               stdin=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def result(process: subprocess.Popen[str]) -> tuple[list[Lost], list[float]]:
    lost, took = json.loads(process.communicate("\n")[0])
    return [Lost(*each) for each in lost], took


def test_a_stopped_process_is_seen_with_the_time_and_the_length():
    process = victim("sys.stdin.readline()")
    os.kill(process.pid, signal.SIGSTOP)
    begin = time.monotonic_ns()
    time.sleep(0.3)
    end = time.monotonic_ns()
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.1)
    lost, _ = result(process)
    (stop,) = [each for each in lost if each.begin_ns < begin + S // 10 and each.end_ns >= end]
    assert stop.cause == PAUSED
    assert stop.begin_ns > begin - S // 10
    assert stop.end_ns - stop.begin_ns >= 0.25 * S


def test_python_s_lock_is_no_pause_while_the_process_computes():
    process = victim("for _ in range(3): sum(range(20_000_000))  # holds the lock for the whole call")
    lost, (took_s, computed_s, begin_ns) = result(process)
    assert computed_s > 0.1
    lost_ns = sum(each.end_ns - max(each.begin_ns, begin_ns) for each in lost if each.end_ns > begin_ns)
    assert lost_ns / S <= took_s - computed_s + 0.1


def test_a_stopped_program_beside_a_worker_is_seen_although_the_worker_runs(monkeypatch):
    program = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(heartbeat._Programs, "_look", lambda self: [str(program.pid)])
    heart = Heartbeat(programs=True)
    for number, stopped_s in ((signal.SIGSTOP, 0.3), (signal.SIGCONT, 0.0), (signal.SIGSTOP, 0.0)):  # until the end
        program.send_signal(number)
        deadline = time.monotonic() + 20
        while bool(heart._programs.since_ns) != (number == signal.SIGSTOP) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(stopped_s)
    stopped = [each for each in heart.stop() if each.cause == STOPPED]
    program.kill()
    program.wait()
    assert len(stopped) == 2
    assert stopped[0].end_ns - stopped[0].begin_ns >= 0.2 * S


def test_the_programs_of_a_machine_are_all_others_in_its_pid_namespace():
    program = subprocess.Popen(["sleep", "60"])
    found = set(heartbeat._Programs()._look())
    program.kill()
    program.wait()
    assert str(program.pid) in found
    assert str(os.getpid()) not in found


def test_a_counter_that_grows_is_a_loss_that_ends_when_it_is_read(monkeypatch):
    now, total = iter([0]), iter([5 * S, 5 * S, 5 * S + S // 5, 9 * S])
    monkeypatch.setattr(heartbeat.time, "monotonic_ns", lambda: next(now))
    meter = heartbeat._Meter(THROTTLED, lambda: next(total))
    assert meter.read(S) == Lost(THROTTLED, S, S)
    assert meter.read(2 * S) == Lost(THROTTLED, 2 * S - S // 5, 2 * S)
    assert meter.read(3 * S) == Lost(THROTTLED, 2 * S, 3 * S)  # of several processors: no longer than the time


def test_a_counter_that_the_kernel_lacks_is_no_loss():
    lost = heartbeat._Meter(THROTTLED, lambda: None).read(10**18)
    assert lost.begin_ns == lost.end_ns


def test_short_losses_are_not_kept_and_of_very_many_the_longest_are():
    losses = Losses()
    losses.add(Lost(PAUSED, 0, heartbeat.LEAST_NS - 1))
    assert losses.all() == []
    for number in range(3 * heartbeat._MOST):
        length = heartbeat.LEAST_NS * (100 if number % 100 == 0 else 1)
        losses.add(Lost(PAUSED, number * S, number * S + length))
    kept = losses.all()
    assert len(kept) <= heartbeat._MOST
    assert sum(each.end_ns - each.begin_ns == 100 * heartbeat.LEAST_NS for each in kept) == 3 * heartbeat._MOST // 100


# ---------------------------------------------------------------- what the kernel counts


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A tree of cgroups, and the function that puts this process into one of them."""
    monkeypatch.setattr(heartbeat, "_CGROUPS", tmp_path)
    numbers = count()

    def enter(lines: str) -> None:
        file = tmp_path / f"cgroup-{next(numbers)}"
        file.write_text(lines)
        monkeypatch.setattr(heartbeat, "_OWN", file)

    return enter


def throttled() -> int | None:
    return throttled_ns(counter_files("cpu", "cpu.stat"))


def test_throttling_is_that_of_the_cgroup_and_of_those_around_it(cgroups, tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.stat").write_text("usage_usec 7\nthrottled_usec 20\n")
    (inner.parent / "cpu.stat").write_text("usage_usec 9\nthrottled_usec 3\n")
    cgroups("0::/outer/inner\n")
    assert throttled() == 23_000


def test_version_1_counts_nanoseconds_in_the_hierarchy_of_its_controller(cgroups, tmp_path):
    (tmp_path / "cpu,cpuacct" / "mine").mkdir(parents=True)
    (tmp_path / "cpu,cpuacct" / "mine" / "cpu.stat").write_text("nr_periods 3\nthrottled_time 42\n")
    cgroups("5:memory:/mine\n4:cpu,cpuacct:/mine\n0::/\n")
    assert throttled() == 42


def test_a_container_that_sees_its_cgroup_as_the_root_reads_it_there(cgroups, tmp_path):
    (tmp_path / "cpu.stat").write_text("throttled_usec 1\n")
    (tmp_path / "memory.pressure").write_text("some avg10=0.00 total=5\nfull avg10=0.00 total=4\n")
    cgroups("0::/docker/0123\n")
    assert (throttled(), swapped_ns(counter_files("memory", "memory.pressure"))) == (1000, 5000)


def test_without_cgroups_throttling_is_unknown(cgroups):
    cgroups("0::/\n")
    assert throttled() is None
