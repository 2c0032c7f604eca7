"""wanbench as its users run it: the command line, real processes, real sockets, real devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.errors import HostError
from harness.host import check_host

WANBENCH = [str(Path(sys.executable).parent / "wanbench")]
# The same command, with less patience for workers that say nothing.
IMPATIENT = [
    sys.executable,
    "-P",
    "-c",
    "import harness.rep as r; r.PATIENCE_S = 2.0; from harness.cli import main; main()",
]


@pytest.fixture(scope="session", autouse=True)
def _host_can_emulate() -> None:
    try:
        check_host([])
    except HostError as error:
        if "CI" in os.environ:
            pytest.fail(f"these tests must run in CI: {error}")
        pytest.skip(str(error))


class HostState(NamedTuple):
    """What a run could leave behind on a host."""

    devices: frozenset[str]
    network_namespaces: frozenset[str]


def host_state() -> HostState:
    spaces = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            spaces.add(os.readlink(link))
        except OSError:
            continue
    return HostState(frozenset(os.listdir("/sys/class/net")), frozenset(spaces))


class Command:
    """A `wanbench` under way, in a session of its own."""

    def __init__(self, arguments: list[str], folder: Path, **popen: Any) -> None:
        self.log = folder / f"stderr-{time.monotonic_ns()}"
        self.temp = folder / "tmp"
        self.temp.mkdir(exist_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temp)},
                **popen,
            )

    def wait(self, timeout_s: float = 200) -> Result:
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            pytest.fail(f"no end within {timeout_s} s:\n{self.log.read_text()}")
        return Result(self.process.returncode, out, self.log.read_text())

    def pids(self) -> list[int]:
        """All processes of the session that are not yet gone, zombies apart."""
        return [pid for pid, state, session in _processes() if session == self.process.pid and state != "Z"]

    def relays(self) -> list[int]:
        return [pid for pid in self.pids() if b"harness.emulators.relay_process" in _command_line(pid)]

    def training(self, algorithm: str, rank: int) -> int | None:
        """Process id of a worker that is training this algorithm: it logs there, and serves its connections."""
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
        """Wait until `what` is true; returns it."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"it did not come to that:\n{self.log.read_text()}")
            time.sleep(0.02)
        return found


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1]


def _processes() -> Iterator[tuple[int, str, int]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield int(path.parent.name), fields[0], int(fields[3])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Bench:
    """A working folder with `wanbench` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[Command] = []

    def start(self, *arguments: str, program: list[str] = WANBENCH, **popen: Any) -> Command:
        command = Command([*program, *arguments], self.folder, **popen)
        self.commands.append(command)
        return command

    def run(self, *arguments: str, program: list[str] = WANBENCH) -> Result:
        return self.start(*arguments, program=program).wait()

    def measure(self, *arguments: str) -> Result:
        """`wanbench run`, and once more if the host was too busy for a valid repetition, as a user would."""
        result = self.run("run", *arguments, "--out", "out")
        if result.code == 4 and " FAILED: " not in result.err:
            result = self.run("run", *arguments, "--out", "out")
        assert result.code == 0, result.err
        return result

    def spec(self, text: str, name: str = "spec") -> str:
        (self.folder / f"{name}.toml").write_text(text)
        return f"{name}.toml"

    def rows(self, run: str) -> list[dict[str, Any]]:
        """One object a repetition, as the command line gives them."""
        return json.loads(self.run("results", f"out/{run}", "--format", "json").out)

    def finished(self, run: str) -> dict[Path, int]:
        """Every finished repetition, with the time of its result."""
        return {p: p.stat().st_mtime_ns for p in (self.folder / "out" / run).glob("cells/*/rep-?/result.json")}

    def close(self) -> None:
        for command in self.commands:
            for pid in [command.process.pid, *command.pids()]:
                if command.process.poll() is None or pid != command.process.pid:
                    os.kill(pid, signal.SIGKILL)
            command.process.wait()
            command.process.stdout.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    here = Bench(tmp_path)
    yield here
    here.close()


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all tests of a file that look at the same run."""
    here = Bench(tmp_path_factory.mktemp("bench"))
    yield here
    here.close()


def by_numbers(name: str, algorithms: str, rtts: str = '["10ms"]', window: int = 20, **more: str) -> str:
    """A spec of two workers with steps of 20 ms; `more` adds lines to tables."""
    return f"""
schema = 1
name = "{name}"

[workload]
params = 100_000
tensors = 4
step_time = "20ms"

[network]
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
