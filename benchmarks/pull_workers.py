"""Kill workers that share a run at random moments, and count what was lost or measured twice.

    python benchmarks/pull_workers.py [--out build/pull-workers] [--kills 100] [--workers 4]

Workers share the folder of one run of 200 simulated and 40 emulated repetitions. Each has PID, mount, UTS and network
namespaces and a temporary folder of its own, as on a host of its own, so no worker can see that another one's process
is gone: only its heartbeat shows that. At random moments one is killed with SIGKILL, and started again; kill number i
is always the same. As root, on an idle host. The exit code is 1 if a repetition is lost, was published twice or failed,
if two emulated repetitions ran at once, or if anything is left in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.results.claims import BEAT_S, MISSED  # noqa: E402
from wanbench.harness.results.digests import journals  # noqa: E402
from wanbench.harness.results.store import EVENTS, RunFolder  # noqa: E402

_SPEC = """
schema = 1
name = "shared"
description = "Simulated and emulated repetitions that several workers share."
[workload]
params = 100_000
tensors = 4
step_time = "50ms"
[network]
rate = "100Mbit"
tcp = { congestion = "reno" }
[algorithms]
ssgd = {}
delayed = { delay = 4 }
sparse = { period = 4 }
dts = { delay = 4, period = 4 }
localsgd = { period = 4 }
cocod = { period = 4 }
diloco = { period = 10 }
[sweep]
workers = [2]
testbed = ["virtual", "netns"]
rtt = ["10ms", "20ms", "30ms", "40ms", "50ms", "60ms", "70ms"]
[[sweep.exclude]]
testbed = "netns"
rtt = ["40ms", "50ms", "60ms", "70ms"]
[[sweep.exclude]]
testbed = "netns"
algorithm = ["delayed-d4", "localsgd-p4", "cocod-p4", "diloco-p10"]
[run]
emulator = "relay"
repeats = 4
window = "100 steps"
"""
_APART = ("unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--uts", "--net")


class Workers:
    """Workers that are started again when they were killed."""

    def __init__(self, out: Path, count: int) -> None:
        self._out, self._started = out, 0
        self._at_work = {number: self._start(number) for number in range(count)}

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        self._started += 1
        temporary = self._out / "tmp" / f"{number}"
        temporary.mkdir(parents=True, exist_ok=True)
        inside = f'hostname host{number}; export TMPDIR={temporary}; exec "$@"'
        wanbench = [sys.executable, "-m", "wanbench.harness.cli", "work", str(self._out / "shared")]
        with (self._out / "logs" / f"{self._started:03d}-host{number}").open("w") as log:
            return subprocess.Popen([*_APART, "sh", "-c", inside, "sh", *wanbench], stdout=log, stderr=log, cwd=ROOT)

    def kill(self, number: int) -> bool:
        """Kill a worker with all that it started, and start another one in its place. False: it had ended."""
        if self._at_work[number].poll() is not None:
            return False
        self._at_work[number].send_signal(signal.SIGKILL)
        self._at_work[number].wait()
        self._at_work[number] = self._start(number)
        return True

    def wait(self) -> list[int]:
        """The exit statuses of all."""
        return [process.wait() for process in self._at_work.values()]

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return all(process.poll() is not None for process in self._at_work.values())


def killed(workers: Workers, count: int, kills: int) -> list[float]:
    """Kill at random moments until all work is done; the times of the kills."""
    random = Random("pull workers")
    times: list[float] = []
    while len(times) < kills and not workers.ended:
        time.sleep(random.uniform(0.5, 6))
        if workers.kill(random.randrange(count)):
            times.append(time.time())
            print(f"kill {len(times)} of {kills}", file=sys.stderr, flush=True)
    return times


def events(run: Path) -> Iterator[Mapping[str, Any]]:
    """What all workers noted, each with the name of the worker."""
    for path in journals(run, EVENTS):
        for line in path.read_text().splitlines():
            yield {**json.loads(line), "worker": path.parent.name}


def overlaps(noted: Sequence[Mapping[str, Any]]) -> int:
    """How often an emulated repetition was finished while one of another worker had begun and was finished later."""
    spans = []
    for end in noted:
        if end["event"] == "finished" and "virtual" not in end["cell"] and not end["cell"].startswith("one-worker"):
            same = (each for each in noted if each["event"] == "started" and each["worker"] == end["worker"])
            began = max(each["time"] for each in same if (each["cell"], each["rep"]) == (end["cell"], end["rep"]))
            spans.append((began, end["time"], end["worker"]))
    pairs = ((one, other) for one in spans for other in spans if one[2] < other[2])
    return len([1 for one, other in pairs if one[0] < other[1] and other[0] < one[1]])


def again_s(noted: Sequence[Mapping[str, Any]], kills: Sequence[float]) -> list[float]:
    """Seconds from each kill until a repetition that it interrupted was begun again."""
    found = []
    begun = [each for each in noted if each["event"] == "started"]
    ends = {(each["worker"], each["cell"], each["rep"]) for each in noted if each["event"] != "started"}
    for each in begun:
        if (each["worker"], each["cell"], each["rep"]) in ends:
            continue
        kill = min((one for one in kills if one >= each["time"]), default=None)
        later = [other["time"] for other in begun if _same(other, each) and other["time"] > each["time"]]
        if kill is not None and later:
            found.append(min(later) - kill)
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one["cell"], one["rep"]) == (other["cell"], other["rep"])


def problems(run: Path, noted: Sequence[Mapping[str, Any]], planned: int) -> Iterator[str]:
    """A line for everything that must not be."""
    rows = RunFolder(run).rows()
    alone = [row for row in rows if row["workers"] == 1 and row["testbed"] != "virtual"]
    times = Counter((row["cell"], row["rep"], row["host"] if row in alone else None) for row in rows)
    several = {place: number for place, number in times.items() if number > 1}
    measured = {(row["cell"], row["rep"]) for row in rows if row["status"] == "ok"}
    if len(measured) != planned:
        yield f"{planned - len(measured)} repetitions have no valid result"
    if several:
        yield f"published twice: {several}"
    finished = Counter((each["cell"], each["rep"], each["worker"]) for each in noted if each["event"] == "finished")
    if any(number > 1 for number in finished.values()):
        yield "a worker finished a repetition twice"
    if overlaps(noted):
        yield f"{overlaps(noted)} pairs of emulated repetitions ran at once"
    left = [*run.glob("claims/*"), *run.rglob("*.part"), *run.glob("workers/*/beat")]
    if left:
        yield f"left in the folder: {', '.join(str(path.relative_to(run)) for path in left)}"


def main() -> int:
    """Kill, count, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "pull-workers", help="folder of the run")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    asked = parser.parse_args()
    out = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True)
    (out / "spec.toml").write_text(_SPEC)
    prepared = [sys.executable, "-m", "wanbench.harness.cli", "run", str(out / "spec.toml"), "--out", str(out)]
    first = subprocess.Popen(prepared, stderr=subprocess.DEVNULL, cwd=ROOT)
    run = out / "shared"
    while not (run / "manifest.json").is_file():
        time.sleep(0.1)
    first.kill()
    first.wait()
    began = time.monotonic()
    workers = Workers(out, asked.workers)
    kills = killed(workers, asked.workers, asked.kills)
    statuses = workers.wait()
    noted = sorted(events(run), key=lambda each: each["time"])
    planned = 4 * len({row["cell"] for row in RunFolder(run).rows()})
    lost = again_s(noted, kills)
    wrong = [*problems(run, noted, planned), *(f"exit status {each}" for each in statuses if each)]
    print(f"{planned} repetitions, {len(kills)} kills of {asked.workers} workers, {time.monotonic() - began:.0f} s")
    print(f"{len(lost)} repetitions were interrupted and begun again", end="")
    if lost:
        print(f" after {statistics.median(lost):.1f} s in the median, {max(lost):.1f} s at most", end="")
    print(f": a lease is {MISSED * BEAT_S:.0f} s, and others first measure what is free")
    print(f"{sum(each['event'] == 'discarded' for each in noted)} results were late and discarded")
    print(*wrong or ["none lost, none twice, nothing left"], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
