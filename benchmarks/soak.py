"""Measure 300 repetitions on namespaces, then call the API 100 times, and print what grows.

    python benchmarks/soak.py [--repetitions 300] [--calls 100] 2> progress.txt

Each line has what this process holds (memory, descriptors, threads), what its children hold (processes, memory), and
what is left on the host (temporary files, files in /dev/shm, namespaces, network devices). The exit code is 1 if
anything is left at the end, if memory grew by over 10 MB between the first and the last tenth, or if this process has a
descriptor or a thread more at the end than after the first tenth.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import wanbench  # noqa: E402

_MOST_MB = 10.0
_SPEC = """
schema = 1
name = "soak"
[workload]
params = 5_000
step_time = "20ms"
[network]
rtt = "10ms"
rate = "100Mbit"
tcp = {{ congestion = "reno", slow_start_after_idle = false }}
[algorithms]
dts = {{ delay = 2, period = 2 }}
[sweep]
workers = [3]
[run]
testbed = "netns"
emulator = "relay"
repeats = {repeats}
"""


@dataclass(frozen=True)
class Sample:
    """What is held at one moment; memory in MB of resident pages."""

    at: str
    memory_mb: float
    descriptors: int
    threads: int
    children: int
    children_mb: float
    files: int
    shm: int
    namespaces: int
    devices: int

    @classmethod
    def take(cls, at: str, temp: Path) -> Sample:
        """Look at this process, at its descendants and at the host."""
        children = list(_descendants(os.getpid()))
        return cls(
            at,
            _resident_mb(os.getpid()),
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(children),
            sum(map(_resident_mb, children)),
            sum(1 for _ in temp.rglob("*")),
            len(os.listdir("/dev/shm")),
            len(_namespaces()),
            len(os.listdir("/sys/class/net")),
        )

    def text(self) -> str:
        """A line of the table."""
        return (
            f"{self.at:24} {self.memory_mb:8.1f} {self.descriptors:5} {self.threads:7} {self.children:9} "
            f"{self.children_mb:11.1f} {self.files:6} {self.shm:4} {self.namespaces:10} {self.devices:7}"
        )


_HEADER = (
    f"{'after':24} {'mem MB':>8} {'fds':>5} {'threads':>7} {'children':>9} {'their MB':>11} {'files':>6} {'shm':>4} "
    f"{'namespaces':>10} {'devices':>7}"
)


def _resident_mb(pid: int) -> float:
    """The memory of a process that no other one shares, and its part of what is shared."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1e3
    except OSError:
        pass
    return 0.0


def _descendants(pid: int) -> Iterator[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _namespaces() -> set[str]:
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                found.add(os.readlink(f"/proc/{entry}/ns/net"))
            except OSError:
                continue
    return found


def repetitions(count: int, temp: Path, out: Path) -> Iterator[Sample]:
    """Measure repetitions of one cell in one run. Yield a sample before, after each tenth, and at the end."""
    yield Sample.take("nothing yet", temp)
    spec = wanbench.Spec.from_toml(_SPEC.format(repeats=count), "soak")
    tenths, ended = _Tenths(count, temp, out / "soak" / "cells"), threading.Event()
    watching = threading.Thread(target=tenths.watch, args=(ended,))
    watching.start()
    wanbench.run(spec, out=out, jobs=1, figures=False)
    ended.set()
    watching.join()
    yield from tenths.samples
    rows = wanbench.Run.open("soak", out).rows()
    valid = sum(row["status"] == "ok" for row in rows)
    yield Sample.take(f"{len(rows)} ended, {valid} valid", temp)


class _Tenths:
    """Takes a sample after each tenth of the repetitions, while they are measured."""

    def __init__(self, count: int, temp: Path, cells: Path) -> None:
        self._count, self._temp, self._cells = count, temp, cells
        self.samples: list[Sample] = []

    def watch(self, ended: threading.Event) -> None:
        """Look often until the run has ended."""
        tenth, done = max(1, self._count // 10), 0
        while not ended.wait(0.2):
            finished = sum(1 for _ in self._cells.glob("*w3*/rep-*/result.json"))
            if done + tenth <= finished < self._count:
                done = finished
                # The thread that looks is not counted.
                sample = Sample.take(f"{finished} repetitions", self._temp)
                self.samples.append(replace(sample, threads=sample.threads - 1))


def calls(count: int, temp: Path, out: Path) -> Iterator[Sample]:
    """Call the API again and again, as a notebook does. Yield a sample after each tenth."""
    tenth = max(1, count // 10)
    for number in range(1, count + 1):
        run = wanbench.run("smoke", testbed="virtual", out=out, fresh=True)
        run.best()
        run.results()
        run.figures()
        run.report()
        if number % tenth == 0:
            yield Sample.take(f"{number} calls", temp)


def _held(samples: list[Sample]) -> list[str]:
    """What grew after the first tenth, and what is left at the end.

    Memory is compared between tenths: at the end of a run its rows are read and tables are written.
    """
    first, last = samples[0], samples[-1]
    running = [sample for sample in samples if sample.children] or samples
    steady, late = running[0], running[-1]
    memory = [(name, _MOST_MB, late) for name in ("memory_mb", "children_mb")]
    compared = [*memory, ("descriptors", 0, last), ("threads", 0, last)]
    grew = [
        f"{name}: {getattr(steady, name)} to {getattr(then, name)}"
        for name, most, then in compared
        if getattr(then, name) > getattr(steady, name) + most
    ]
    left = [
        f"{name}: {getattr(first, name)} to {getattr(last, name)}"
        for name in ("children", "files", "shm", "namespaces", "devices")
        if getattr(last, name) > getattr(first, name)
    ]
    return grew + left


def _shown(samples: Iterator[Sample]) -> list[Sample]:
    print(_HEADER, flush=True)
    shown = []
    for sample in samples:
        print(sample.text(), flush=True)
        shown.append(sample)
    return shown


def main() -> int:
    """Run both parts, and print what grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--calls", type=int, default=100)
    asked = parser.parse_args()
    parts: list[tuple[int, Callable[..., Iterator[Sample]]]] = [
        (asked.repetitions, repetitions), (asked.calls, calls),
    ]  # fmt: skip
    held: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        temp, out = Path(folder) / "tmp", Path(folder) / "results"
        temp.mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(temp)
        for count, part in parts:
            if count:
                held += _held(_shown(part(count, temp, out)))
        tempfile.tempdir = None
    print(*(held or ["nothing grew, nothing is left"]), sep="\n")
    return 1 if held else 0


if __name__ == "__main__":
    sys.exit(main())
