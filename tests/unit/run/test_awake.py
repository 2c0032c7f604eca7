"""Processors of a virtual machine stay awake while a network is emulated, at the expense of nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wanbench.harness.process import priority

HELD = """
import os, sys
from wanbench.harness.process import priority
priority._is_virtual = lambda: True
with priority.processors_awake():
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def kept_awake_by(parent: int) -> list[int]:
    """The processes of `parent` that keep a processor awake."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            child_of = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if child_of == parent and b"process.priority" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def started_by(parent: int) -> list[int]:
    """The processes that keep a processor awake, once each has its command line: just after its start it has none."""
    comes_true(lambda: len(kept_awake_by(parent)) == len(os.sched_getaffinity(0)))
    return kept_awake_by(parent)


def comes_true(claim: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


@pytest.fixture
def virtual(monkeypatch):
    monkeypatch.setattr(priority, "_is_virtual", lambda: True)


def test_one_process_at_idle_priority_holds_each_processor_and_ends_with_the_run(virtual):
    with priority.processors_awake():
        processes = started_by(os.getpid())
        assert len(processes) == len(os.sched_getaffinity(0))
        assert comes_true(lambda: {os.sched_getscheduler(pid) for pid in processes} == {os.SCHED_IDLE})
        assert sorted(next(iter(os.sched_getaffinity(pid))) for pid in processes) == sorted(os.sched_getaffinity(0))
    assert kept_awake_by(os.getpid()) == []


BUSY = """
import os
os.setsid()
os.sched_setaffinity(0, {int(os.environ["PROCESSOR"])})
print(flush=True)
while True:
    pass
"""


def used_s(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_program_in_another_session_has_its_processor_almost_for_itself(virtual):
    processor = min(os.sched_getaffinity(0))
    with priority.processors_awake():
        processes = started_by(os.getpid())
        assert comes_true(lambda: {os.sched_getscheduler(pid) for pid in processes} == {os.SCHED_IDLE})
        awake = next(pid for pid in processes if os.sched_getaffinity(pid) == {processor})
        session = Path(f"/proc/{awake}/autogroup")  # not every kernel has it
        assert not session.exists() or comes_true(lambda: session.read_text().endswith("nice 19\n"))
        environment = os.environ | {"PROCESSOR": str(processor)}
        with subprocess.Popen([sys.executable, "-c", BUSY], env=environment, stdout=subprocess.PIPE) as busy:
            assert busy.stdout is not None
            busy.stdout.readline()
            begun = used_s(awake), used_s(busy.pid)
            assert comes_true(lambda: used_s(busy.pid) > begun[1] + 2)
            busy.kill()
            assert used_s(awake) - begun[0] < 0.1 * 2


def test_it_can_be_switched_off_and_a_real_machine_needs_none(virtual, monkeypatch):
    monkeypatch.setenv(priority.SWITCH, "off")
    with priority.processors_awake():
        assert kept_awake_by(os.getpid()) == []
    monkeypatch.delenv(priority.SWITCH)
    monkeypatch.setattr(priority, "_is_virtual", lambda: False)
    with priority.processors_awake():
        assert kept_awake_by(os.getpid()) == []


@pytest.mark.parametrize(
    ("about", "needed"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu vme hypervisor\n", True),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu vme\n", False),
        ("vendor_id\t: User Mode Linux\nflags\t\t: fpu vme hypervisor\n", False),
        ("processor\t: 0\n", False),
    ],
)
def test_a_virtual_machine_needs_it_and_user_mode_linux_does_not(monkeypatch, about, needed):
    monkeypatch.setattr(Path, "read_text", lambda _: about)
    assert priority._is_virtual() is needed


def test_a_killed_run_leaves_none():
    with subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        processes = started_by(run.pid)
        assert len(processes) == len(os.sched_getaffinity(0))
        assert comes_true(lambda: {os.sched_getscheduler(pid) for pid in processes} == {os.SCHED_IDLE})
        run.kill()
    assert comes_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
