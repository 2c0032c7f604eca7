"""However a run ends, the host is unchanged, finished repetitions are kept, and the same command resumes it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_session import SOON_S, Bench, Command, by_numbers
from leftovers import namespaces

SPEC = by_numbers("steady", "ssgd = {}\ndelayed = { delay = 2 }", window=60)
RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
INTERRUPTED = "wanbench: interrupted; finished repetitions are kept; the same command continues"
VICTIMS = (("ssgd", 1), ("delayed-d2", 1))


def measuring(bench, run=RUN, **start):
    """Start a run, and return it in the middle of a cell after its first."""
    bench.spec(SPEC)
    command = bench.start(*run, **start)
    command.until(lambda: len(bench.finished("steady")) >= 1 and any(worker(command)))
    time.sleep(0.3)
    return command


def worker(command: Command) -> list[int | None]:
    """Return the process id of the second worker of the measured cell."""
    return [command.training(algorithm, rank) for algorithm, rank in VICTIMS]


def ignore_sigint():
    """Ignore SIGINT, as a shell does for background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---------------------------------------------------------------- how a run ends


class Ending(NamedTuple):
    """What happens to a run, and what it prints.

    Attributes:
        does: what happens to the command. code: its exit code. prints: its last line; None if it cannot print one.
        popen: how it is started. fails: the current repetition has failed.
        long: another ending shows the same, except how the signal is sent.
    """

    does: Callable[[Bench, Command], None]
    code: int
    prints: str | None
    popen: dict = {}  # noqa: RUF012 - never changed
    fails: bool = False
    long: bool = False


def signalled(number: int) -> Callable[[Bench, Command], None]:
    return lambda _bench, command: command.process.send_signal(number)


def to_all(number: int) -> Callable[[Bench, Command], None]:
    """Signal the whole group, as a terminal does on Ctrl-C, or a batch system at the end of a job."""
    return lambda _bench, command: os.killpg(command.process.pid, number)


def with_all_stopped(number: int) -> Callable[[Bench, Command], None]:
    """Signal the command while its relay and its workers are stopped."""

    def does(_bench: Bench, command: Command) -> None:
        for pid in (*command.relays(), *filter(None, worker(command))):
            os.kill(pid, signal.SIGSTOP)
        command.process.send_signal(number)

    return does


def without_the_workers_parent(_bench: Bench, command: Command) -> None:
    os.kill(command.workers_parent(), signal.SIGKILL)


ENDINGS = {
    "Ctrl-C": Ending(to_all(signal.SIGINT), 130, INTERRUPTED),
    "SIGINT in the background": Ending(
        signalled(signal.SIGINT), 130, INTERRUPTED, popen={"preexec_fn": ignore_sigint}, long=True
    ),
    "SIGTERM": Ending(signalled(signal.SIGTERM), 130, INTERRUPTED, long=True),
    "SIGTERM while relay and workers hang": Ending(with_all_stopped(signal.SIGTERM), 130, INTERRUPTED),
    "SIGKILL": Ending(signalled(signal.SIGKILL), -9, None, long=True),
    "SIGKILL while relay and workers hang": Ending(with_all_stopped(signal.SIGKILL), -9, None, long=True),
    "SIGKILL of all at once": Ending(to_all(signal.SIGKILL), -9, None),
    "SIGKILL of the workers' parent": Ending(
        without_the_workers_parent, 3, "wanbench: the workers' parent process ended", fails=True
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * ending.long) for name, ending in ENDINGS.items()]
)
def test_after_any_end_nothing_is_left_or_lost_and_the_same_command_completes_the_run(bench, name):
    ending = ENDINGS[name]
    command = measuring(bench, **ending.popen)
    # the command, a relay, the workers' parent, and for each of two workers itself, its keeper and its process 1
    assert len(command.pids()) == 9
    assert len(set().union(*map(namespaces, command.pids()))) == 2  # now; a cell that was repeated had its own
    finished = bench.finished("steady")
    ending.does(bench, command)
    result = command.wait(SOON_S)
    assert result.code == ending.code
    assert "Traceback" not in result.err
    if ending.prints is not None:
        assert (result.last_line, result.out) == (ending.prints, "")
    assert command.left_nothing()
    assert bench.finished("steady") == finished
    # A dropped repetition is not a failure.
    assert {row["status"] for row in bench.rows("steady")} == ({"ok", "failed"} if ending.fails else {"ok"})
    left_in_temp(bench, command, crashed=ending.prints is None)

    again = bench.start(*RUN)
    result = again.wait()
    assert result.code == 0, result.err
    assert f"3 reps, {3 - len(finished)} to do" in result.err
    complete(bench, finished)
    assert again.left_nothing()
    assert list(again.temp.iterdir()) == []


def left_in_temp(bench, command, *, crashed):
    """Check that only a run without time to clean up leaves its folder, and that `clean` would remove exactly that."""
    left = list(command.temp.iterdir())
    assert len(left) == crashed
    listed = bench.run("clean", "--dry-run")
    assert (listed.code, listed.out) == (0, "".join(f"would remove {folder}\n" for folder in left))
    assert listed.err == ("" if crashed else "nothing to clean\n")
    assert list(command.temp.iterdir()) == left


def complete(bench, finished):
    """Check that all three repetitions exist, finished ones untouched, and nothing half-written."""
    after = bench.finished("steady")
    assert len(after) == 3
    assert {path: after[path] for path in finished} == finished
    assert {row["status"] for row in bench.rows("steady")} == {"ok"}
    assert list(bench.out.rglob("*.part")) == []
    assert (bench.out / "steady/results.parquet").stat().st_size > 0


def test_an_interrupt_while_workers_start_ends_the_run_too_even_in_the_background(bench):
    bench.spec(SPEC)
    command = bench.start(*RUN, preexec_fn=ignore_sigint)
    command.until(lambda: len(command.pids()) >= 2)  # the workers' parent imports torch
    os.kill(command.process.pid, signal.SIGINT)
    result = command.wait(SOON_S)
    assert result.code == 130
    assert result.last_line == INTERRUPTED
    assert command.left_nothing()


# ---------------------------------------------------------------- several runs at once


def test_one_of_two_runs_can_crash_and_resume_while_the_other_continues_and_one_folder_has_one_run(bench):
    bench.spec(SPEC)
    other = tuple("other" if word == "out" else word for word in RUN)
    others = lambda: len(list((bench.folder / "other").glob("steady/cells/*/rep-?/result.json")))  # noqa: E731
    second = bench.start(*other, "--set", "run.repeats=40")
    second.until(others)
    refused = bench.run(*other)
    assert (refused.code, refused.out) == (3, "")
    assert re.fullmatch(
        r"wanbench: other/steady: another process \(\S+\) is measuring here with another spec or other options; "
        r"wait for it, or use --out\n",
        refused.err,
    )
    first = measuring(bench)
    finished = bench.finished("steady")
    first.process.kill()
    first.wait()
    before = others()
    again = bench.run(*RUN)  # removes the leftovers of the first run, but nothing that the second run uses
    assert again.code == 0, again.err
    complete(bench, finished)
    assert second.process.poll() is None
    assert len(list(second.temp.iterdir())) == 1
    second.until(lambda: others() > before)
    second.process.terminate()
    result = second.wait(SOON_S)
    assert (result.code, result.last_line) == (130, INTERRUPTED)
    assert " FAILED: " not in result.err
    assert second.left_nothing()
    assert list(second.temp.iterdir()) == []


# ---------------------------------------------------------------- results that cannot be written


@pytest.fixture
def small_disk(bench):
    """Mount a separate disk at `out`, in a mount namespace of this test."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount: sudo make test")
    disk = SmallDisk(bench)
    bench.program, bench.out = disk.program, disk.seen
    yield disk
    disk.close()


class SmallDisk:
    """A mount namespace with a tmpfs at `out`, which commands enter and which lives until it is closed."""

    def __init__(self, bench: Bench) -> None:
        self.path = bench.out
        self.path.mkdir()
        script = f"mount -t tmpfs -o size=8m tmpfs {self.path} && echo mounted && read end"
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.holder.stdout.readline() == "mounted\n"
        # From outside and from inside; the working folder must be resolved inside.
        self.seen = Path(f"/proc/{self.holder.pid}/root{self.path}")
        self.enter = ["nsenter", "--target", str(self.holder.pid), "--mount", "sh", "-ec", 'cd "$0" && exec "$@"']
        self.program = [*self.enter, str(bench.folder), *bench.program]

    def remount(self, option: str) -> None:
        subprocess.run([*self.enter, "/", "mount", "-o", f"remount,{option}", str(self.path)], check=True)

    def fill(self) -> None:
        with (self.seen / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        (self.seen / "filler").unlink()

    def close(self) -> None:
        self.holder.communicate()


def test_a_full_disk_ends_the_run_in_one_line_and_the_run_resumes_once_there_is_space(bench, small_disk):
    command = measuring(bench)
    finished = bench.finished("steady")
    small_disk.fill()
    result = command.wait(SOON_S)
    assert (result.code, result.out) == (3, "")
    assert result.last_line == "wanbench: out/steady: No space left on device; finished repetitions are kept"
    assert "Traceback" not in result.err
    assert command.left_nothing()
    assert list(command.temp.iterdir()) == []
    assert bench.finished("steady") == finished
    again = bench.run(*RUN)
    assert (again.code, again.out) == (3, "")
    assert again.last_line.startswith("wanbench: out/steady: ")
    assert "No space left on device" in again.last_line
    small_disk.free()
    again = bench.run(*RUN)
    assert again.code == 0, again.err
    complete(bench, finished)


@pytest.mark.long  # a full disk is tested each time
def test_read_only_results_can_be_read_and_the_run_resumes_once_they_are_writable(bench, small_disk):
    command = measuring(bench)
    command.process.kill()
    command.wait()
    assert command.left_nothing()
    finished = bench.finished("steady")
    small_disk.remount("ro")
    refused = bench.run(*RUN)
    assert (refused.code, refused.out) == (3, "")
    assert refused.err == (
        "wanbench: out/steady: cannot write results here (Read-only file system); choose another folder with --out\n"
    )
    assert len(bench.rows("steady")) == 1
    drawn = bench.run("results", "out/steady", "--format", "parquet")
    assert (drawn.code, drawn.out) == (3, "")
    assert drawn.err == "wanbench: out/steady/results.parquet: Read-only file system\n"
    small_disk.remount("rw")
    again = bench.run(*RUN)
    assert again.code == 0, again.err
    complete(bench, finished)


def test_a_file_in_place_of_the_results_folder_is_reported_in_one_line(bench):
    bench.spec(SPEC)
    (bench.folder / "out").mkdir()
    (bench.folder / "out" / "steady").write_text("mine")
    result = bench.run(*RUN)
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        "wanbench: out/steady: cannot write results here (File exists); choose another folder with --out\n"
    )
    assert (bench.folder / "out" / "steady").read_text() == "mine"


# Other users may be unable to read the interpreter, so everything is imported before the rights are dropped.
AS_NOBODY = """
import os, shutil, subprocess, tempfile
import wanbench.harness.api, wanbench.harness.cli.run_command, wanbench.harness.show.tables
import wanbench.workloads.compute.task
from wanbench.harness.cli import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main()
"""


def test_without_the_right_to_create_devices_the_remedy_is_printed_in_one_line(bench):
    if os.geteuid() != 0 or os.stat("/dev/net/tun").st_mode & 0o006:
        pytest.skip("needs root, and a /dev/net/tun that is closed to others: sudo chmod 0600 /dev/net/tun")
    for folder in (bench.folder, *bench.folder.parents[:2]):
        folder.chmod(0o777)
    result = bench.run("run", "smoke", "--out", "out", program=[sys.executable, "-P", "-c", AS_NOBODY])
    assert result.code == 3
    assert result.last_line == (
        "wanbench: /dev/net/tun: permission denied; run as root, or: sudo chmod 0666 /dev/net/tun "
        "(`--testbed virtual` simulates this)"
    )
    assert "Traceback" not in result.err
    assert (bench.folder / "out" / "smoke").owner() == "nobody"
