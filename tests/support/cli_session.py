"""Run wanbench as users do: the command line, real processes, real sockets, real devices; `warm` starts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import warm
from click.testing import CliRunner
from leftovers import Snapshot, held_namespaces, namespaces, started_with
from warm import Warm

from wanbench.harness.cli import main

WANBENCH = [str(Path(sys.executable).parent / "wanbench")]
# The same command for a busy host: tests of crashes accept late packets and pauses, so processors may sleep.
_TOLERANT = "import wanbench.harness.rep.measure as r, wanbench.harness.rep.command as c; "
_TOLERANT += "r.judge = c.judge = r.judge_pauses = c.judge_pauses = lambda *_: []; "
_MAIN = "import os; os.environ['WANBENCH_AWAKE'] = 'off'; from wanbench.entry import main; main()"
TOLERANT = [sys.executable, "-P", "-c", _TOLERANT + _MAIN]
# The same, with less patience for silent workers.
IMPATIENT = [
    sys.executable,
    "-P",
    "-c",
    _TOLERANT + "import wanbench.harness.plan.repetition as p; p.PATIENCE_S = 5.0; " + _MAIN,
]


T = TypeVar("T")
PATIENCE_S = 240.0  # for a busy host, in one test


_MODULE = 'import runpy; runpy.run_module({module!r}, run_name="__main__", alter_sys=True)'


class _Patience:
    """Count the patience that is left for a session, so that a lane ends in time on a busy host."""

    left_s = 600.0


# In which a command must end, and all its processes with it: long for a busy host, short for one that hangs.
SOON_S = 20.0
_MARK = "WANBENCH_TEST_COMMAND"  # in the environment of every process of a command, in any session


class Command:
    """A running `wanbench` command in a new session."""

    def __init__(self, arguments: list[str], folder: Path, **popen: Any) -> None:
        self.log = folder / f"stderr-{time.monotonic_ns()}"
        self.temp = folder / "tmp"
        self.temp.mkdir(exist_ok=True)
        self.before = Snapshot.take()
        self.namespaces: set[str] = set()  # in which its processes were seen, or which they held
        self.seen_s = 0.0  # when they were last seen, since boot
        environment = {**os.environ, "TMPDIR": str(self.temp), _MARK: str(self.log)}
        with self.log.open("w") as log:
            started = {"folder": folder, "err": log.fileno(), "environment": environment}
            match arguments:
                case [program, *rest] if [program] == WANBENCH and not popen:
                    self.process = Warm(warm.WANBENCH, rest, **started)
                case [sys.executable, "-P", "-c", code, *rest] if not popen:
                    self.process = Warm(code, rest, **started)
                case [sys.executable, "-m", module, *rest] if not popen:
                    code = warm.OF_THE_FOLDER.format(folder=str(folder)) + _MODULE.format(module=module)
                    self.process = Warm(code, rest, imported=warm.LIBRARIES, **started)
                case _:
                    self.process = subprocess.Popen(
                        arguments,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        start_new_session=True,
                        env=environment,
                        **popen,
                    )

    def wait(self, timeout_s: float = 600) -> Result:
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            pytest.fail(f"no end within {timeout_s} s:\n{self.log.read_text()}")
        return Result(self.process.returncode, out, self.log.read_text())

    def pids(self) -> list[int]:
        """Return all live processes of the session, and those that it gave their own, without zombies."""
        status = {int(path.name): _status(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
        mine = str(self.process.pid)
        running = {pid: fields for pid, fields in status.items() if fields and fields[0] != "Z"}
        pids = [pid for pid, fields in running.items() if mine in (fields[1], fields[3])]  # its parent, its session
        self.namespaces |= set().union(*map(namespaces, pids))
        if pids:
            self.seen_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        return pids

    def processes(self) -> set[int]:
        """Return all its live processes, in any session."""
        return {*self.pids(), *started_with(f"{_MARK}={self.log}")}

    def left_nothing(self) -> bool:
        """Return whether soon no process and no namespace of it is left, and the host is unchanged."""
        deadline = time.monotonic() + SOON_S
        while left := self.left():
            if time.monotonic() > deadline:
                print("\n".join(left))
                return False
            time.sleep(0.1)
        return True

    def left(self) -> list[str]:
        """Return a line for each thing that it left or changed on the host."""
        return [
            *(f"process {pid}: {_read(pid, 'cmdline')!r}" for pid in sorted(self.processes())),
            *(f"namespace {name}" for name in sorted(self.namespaces & held_namespaces(self.seen_s))),
            *Snapshot.take().changes(self.before),
        ]

    def relays(self) -> list[int]:
        return self.children("wanbench.harness.emulators.relay.process")

    def workers_parent(self) -> int:
        (pid,) = self.children("wanbench.workloads.process.forkserver")
        return pid

    def children(self, module: str) -> list[int]:
        pids = [pid for pid in self.pids() if _parent(pid) == self.process.pid]
        return [pid for pid in pids if module.encode() in _read(pid, "cmdline")]

    def training(self, algorithm: str, rank: int) -> int | None:
        """Return the process id of the worker that trains this algorithm: it writes its log and has connections."""
        for pid in self.pids():
            try:
                log = os.readlink(f"/proc/{pid}/fd/1")
                threads = len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                continue
            if f"/cells/{algorithm}-w" in log and log.endswith(f"/worker-{rank}.log") and threads > 1:
                return pid
        return None

    def until(self, what: Callable[[], Any], timeout_s: float = 60) -> Any:
        """Wait until `what` is true, and return its value."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"it did not come to that:\n{self.log.read_text()}")
            time.sleep(0.05)
        return found


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1]


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _status(pid: int) -> list[str]:
    """Return state, parent, process group, session, ...; empty if the process does not exist."""
    return _read(pid, "stat").decode().rpartition(")")[2].split()


def _parent(pid: int) -> int | None:
    status = _status(pid)
    return int(status[1]) if status else None


class Bench:
    """A working folder with `wanbench` in it; its runs are in `out`."""

    program = WANBENCH

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.commands: list[Command] = []

    def start(self, *arguments: str, program: list[str] | None = None, **popen: Any) -> Command:
        command = Command([*(program or self.program), *arguments], self.folder, **popen)
        self.commands.append(command)
        return command

    def run(self, *arguments: str, program: list[str] | None = None) -> Result:
        return self.start(*arguments, program=program).wait()

    def measure(self, *arguments: str) -> Result:
        """Run `wanbench run`, again while the host is too busy for a valid repetition, as a user would."""
        result = patiently(
            lambda: self.run("run", *arguments, "--out", "out"),
            lambda result: result.code == 4 and " FAILED: " not in result.err,
        )
        assert result.code == 0, result.err
        return result

    def spec(self, text: str, name: str = "spec") -> str:
        (self.folder / f"{name}.toml").write_text(text)
        return f"{name}.toml"

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Return one object per repetition, as the command line prints them; read in this process, which is faster."""
        result = CliRunner().invoke(main, ["results", str(self.out / run), "--format", "json"])
        return json.loads(result.stdout)

    def finished(self, run: str) -> dict[Path, int]:
        """Return every finished repetition with the time of its result."""
        return {p: p.stat().st_mtime_ns for p in (self.out / run).glob("cells/*/rep-?/result.json")}

    def written(self, pattern: str) -> str:
        """Read files that a run is writing, or moving to their final place."""
        text = ""
        for path in self.folder.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                text += path.read_text()
        return text

    def close(self) -> None:
        for command in self.commands:
            while processes := command.processes():
                for pid in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                command.process.poll()
                time.sleep(0.01)
            command.process.wait()
            command.process.stdout.close()


def patiently(attempt: Callable[[], T], disturbed: Callable[[T], bool]) -> T:
    """Return the result of an attempt, which is repeated while a busy host disturbs it, for seconds or minutes."""
    result, began = attempt(), time.monotonic()
    while disturbed(result) and time.monotonic() - began < min(PATIENCE_S, _Patience.left_s):
        result = attempt()
    _Patience.left_s -= time.monotonic() - began
    return result


# For `by_numbers` if late packets count: any processor relays this rate. Without a rate, bursts make packets late.
CARRIED = 'rate = "100Mbit"'


def by_numbers(name: str, algorithms: str, rtts: str = '["10ms"]', window: int = 20, **more: str) -> str:
    """Return a spec with two workers and steps of 20 ms; `more` adds lines to its tables."""
    return f"""
schema = 1
name = "{name}"

[workload]
params = 100_000
tensors = 4
step_time = "20ms"

[network]
{more.get("network", "")}
tcp = {{ congestion = "reno", slow_start_after_idle = false }}

[algorithms]
{algorithms}

[sweep]
workers = [2]
rtt = {rtts}

[run]
repeats = 1
window = "{window} steps"
{more.get("run", "")}
"""
