"""Measure what a large run costs beside its simulations: time, memory and files of `run`, and of all that reads it.

    python benchmarks/ten_thousand.py [N] [--repeats 5] [--keep FOLDER] [--no-figures]

The run has N simulated repetitions (default 10000): 20 settings of four algorithms, each on N / (20 x repeats) uniform
networks. Two workers without vectors take the shortest window, so that little time is spent on simulating. Every
command runs in a new process. Where other programs share the processors, compare CPU time: that of the command and of
the processes that it started.

`overhead` is what a repetition costs the controller in addition to `measure()`, as processor time of the controller,
and as wall time in which a slot measured nothing. It is shown for each fifth of the run, so that growth is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

_SETTINGS = 20
_RATES = ("1Gbit", "100Mbit", "300Mbit", "30Mbit")
_PARTS, _STARTING = 5, 20
_SLOTS = min(2, os.cpu_count() or 1)
_SPEC = """
schema = 1
name = "many"
[workload]
params = 5_000
step_time = "20ms"
[network]
tcp = {{ congestion = "reno", slow_start_after_idle = false }}
[algorithms]
ssgd = {{}}
delayed = {{ delay = [1, 2, 3, 4, 5] }}
sparse = {{ period = [2, 3, 4, 5] }}
dts = {{ delay = [1, 2, 3, 4, 5], period = [2, 4] }}
[sweep]
workers = [2]
rtt = {rtts}
rate = {rates}
[run]
testbed = "virtual"
window = "20 steps"
repeats = {repeats}
"""


def spec(repetitions: int, repeats: int) -> str:
    """A spec with about this number of repetitions of more than one worker."""
    networks = max(1, round(repetitions / _SETTINGS / repeats))
    rates = next(count for count in (4, 2, 1) if networks % count == 0)
    rtts = [f"{10 + place}ms" for place in range(networks // rates)]
    return _SPEC.format(rtts=json.dumps(rtts), rates=json.dumps(_RATES[:rates]), repeats=repeats)


class _Overhead:
    """Counts the processor time of this process, and the wall time of its slots, outside `measure()`."""

    def __init__(self, slots: int) -> None:
        self._slots, self._lock, self._began_s = slots, threading.Lock(), time.monotonic()
        self._cpu_s = self._wall_s = 0.0  # inside `measure()`, over all slots
        self._marks: list[tuple[float, float]] = []  # at the end of each, CPU and wall seconds outside

    def around(self, measure: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def counted(*args: Any) -> Any:
            cpu_s, wall_s = time.thread_time(), time.monotonic()
            try:
                return measure(*args)
            finally:
                with self._lock:
                    self._cpu_s += time.thread_time() - cpu_s
                    self._wall_s += time.monotonic() - wall_s
                    outside_s = time.monotonic() - self._began_s - self._wall_s / self._slots
                    self._marks.append((time.process_time() - self._cpu_s, outside_s))

        return counted

    def parts(self) -> list[tuple[float, float]]:
        """CPU and wall ms of overhead per repetition in each part of the run, without its first repetitions."""
        marks = self._marks[_STARTING:]
        edges = [round(part * (len(marks) - 1) / _PARTS) for part in range(_PARTS + 1)] if marks else []
        return [(_each_ms(marks, begin, end, 0), _each_ms(marks, begin, end, 1)) for begin, end in pairwise(edges)]


def _each_ms(marks: Sequence[tuple[float, float]], begin: int, end: int, which: int) -> float:
    return 1e3 * (marks[end][which] - marks[begin][which]) / max(1, end - begin)


def inside(report: Path, words: Sequence[str]) -> None:
    """Run a command of wanbench in this process, and write what it cost."""
    from wanbench.harness.cli import main
    from wanbench.harness.rep.measure import measure
    from wanbench.harness.run import session

    overhead = _Overhead(_SLOTS)
    vars(session)["measure"] = overhead.around(measure)
    sys.argv = ["wanbench", *words]
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "own_cpu_s": own.ru_utime + own.ru_stime,
        "own_mb": own.ru_maxrss / 1e3,
        "other_mb": others.ru_maxrss / 1e3,
        "parts": overhead.parts(),
    }
    report.write_text(json.dumps(found))
    sys.exit(code)


def costs(words: Sequence[str], said: Path) -> tuple[float, float, float, int]:
    """Wall seconds, CPU seconds and largest resident MB of a command, and its exit code."""
    with said.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, process.returncode


def _size(folder: Path) -> tuple[int, float, float]:
    """Number of files, and their MB: as long as they are, and on disk."""
    stats = [os.stat(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    return len(stats), sum(one.st_size for one in stats) / 1e6, sum(one.st_blocks * 512 for one in stats) / 1e6


def _line(title: str, wall_s: float, cpu_s: float, mb: float) -> str:
    return f"{title:18}{wall_s:9.1f}{cpu_s:9.1f}{mb:9.0f}"


def _run(out: Path, further: Sequence[str]) -> None:
    report, said = out / "cost.json", out / "run.txt"
    words = [sys.executable, __file__, "--inside", str(report), "run", str(out / "many.toml"), "--out", str(out)]
    words += ["--jobs", str(_SLOTS)]
    wall_s, cpu_s, _, code = costs([*words, *further], said)
    if code:
        raise SystemExit(f"run ended with {code}: {said.read_text()[-2000:]}")
    found = json.loads(report.read_text())
    done = sum(1 for _ in (out / "many").glob("cells/*/rep-*/result.json"))
    print(_line("run", wall_s, cpu_s, max(found["own_mb"], found["other_mb"])))
    print(f"  {done} repetitions: {1e3 * wall_s / done:.2f} ms of wall time each, {1e3 * cpu_s / done:.2f} ms of CPU")
    for which, name in enumerate(("CPU", "wall")):
        print(f"  overhead, {name} ms in each fifth: {', '.join(f'{part[which]:.2f}' for part in found['parts'])}")
    print(
        f"  controller: {found['own_cpu_s']:.1f} s of CPU, {found['own_mb']:.0f} MB; others {found['other_mb']:.0f} MB"
    )
    files, megabytes, on_disk = _size(out / "many")
    print(f"  {files} files, {megabytes:.1f} MB, {on_disk:.1f} MB on disk", flush=True)


def _readers(out: Path) -> None:
    name, where = "many", ["--out", str(out)]
    commands = {
        "results": ["results", name, *where],
        "results, pivot": ["results", name, *where, "--format", "pivot"],
        "results, json": ["results", name, *where, "--format", "json"],
        "report": ["report", name, *where],
        "verify": ["verify", name, *where],
        "figures": ["figures", name, *where, "-o", str(out / "figures")],
        "run again": ["run", str(out / "many.toml"), *where, "--no-figures"],
    }
    for title, words in commands.items():
        said = out / "said.txt"
        wall_s, cpu_s, mb, code = costs([sys.executable, "-m", "wanbench.harness.cli", *words], said)
        about = f"  {said.stat().st_size / 1e6:.2f} MB of text" if title.startswith("results") else ""
        if title == "report":
            about = f"  a page of {(out / name / 'report.html').stat().st_size / 1e6:.1f} MB"
        about += f"  exit code {code}" if code else ""
        print(_line(title, wall_s, cpu_s, mb) + about, flush=True)


def main() -> None:
    """Run, then read, and print a line for each command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("repetitions", type=int, nargs="?", default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the run; without it, nothing is kept")
    parser.add_argument("--no-figures", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = asked.keep or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        (out / "many.toml").write_text(spec(asked.repetitions, asked.repeats))
        print(f"{'command':18}{'wall s':>9}{'CPU s':>9}{'MB':>9}")
        _run(out, ["--no-figures"] if asked.no_figures else [])
        _readers(out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
