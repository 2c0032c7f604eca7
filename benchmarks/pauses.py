"""Stop workers, programs, the relay, the controller or containers for 50 ms to 2 s, and count what is still published.

    python benchmarks/pauses.py [--out build/pauses] [--disturbed 200] [--undisturbed 100] [--testbed netns|docker]

Repetitions take two to four seconds and follow each other in a random order. Repetition number i is always the same.
Those in OUT/TESTBED.csv are not measured again, so the same command continues where it stopped. The error of a
repetition is the difference of its step time from the median of the valid undisturbed ones of its cell. The exit code
is 1 if one with an error above 5 % is published, or if 2 % or more of the undisturbed ones are refused. (None of 200
means: at most 1.5 %, with 95 % confidence.) Run it on an idle host, for containers as root with the image of
`make image`, or else with the files of this host:

    sh scripts/with-dockerd.sh .venv/bin/python benchmarks/pauses.py --testbed docker
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.errors import RepFailed  # noqa: E402
from wanbench.harness.plan.auto import FixedHost  # noqa: E402
from wanbench.harness.plan.cell import Cell, CommandCell  # noqa: E402
from wanbench.harness.plan.plan import make  # noqa: E402
from wanbench.harness.process.priority import processors_awake  # noqa: E402
from wanbench.harness.rep.measure import measure  # noqa: E402
from wanbench.harness.run.host import control_folder  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402
from wanbench.harness.testbeds import opened  # noqa: E402

_WORKERS = 3
_LONGEST_S, _SHORTEST_S = 2.0, 0.05
_LARGEST_ERROR, _MOST_REFUSED = 0.05, 0.02
_ALGORITHMS = ("ssgd = {}", "delayed = { delay = 4 }", "sparse = { period = 4 }")
_SPEC = """
schema = 1
name = "pauses"
[workload]
{workload}
[network]
rtt = "20ms"
rate = "100Mbit"
tcp = {{ congestion = "reno", slow_start_after_idle = false }}
[algorithms]
{algorithm}
[sweep]
workers = [{workers}]
[run]
testbed = "{testbed}"
emulator = "relay"
window = "32 steps"
"""
_TRAINING = 'params = 20_000\ntensors = 2\nstep_time = "60ms"\nstep_cv = 0.0'
_COMMAND = 'command = ["{python}", "ring.py"]\nwarmup = "3 steps"'
# A program that waits for all others in each step, as training does.
_RING = """
import os, socket, time
import wanbench

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
names = os.environ["WANBENCH_HOSTS"].split(",")
listening = socket.create_server(("", 7000))
while True:
    try:
        ahead = socket.create_connection((names[(rank + 1) % world], 7000), timeout=5)
        break
    except OSError:
        time.sleep(0.02)
behind, _ = listening.accept()
ahead.settimeout(None)
for connection in (ahead, behind):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(40):
    time.sleep(0.03)
    for _ in range(world - 1):
        ahead.sendall(bytes(10_000))
        left = 10_000
        while left:
            left -= len(behind.recv(left))
    wanbench.step()
"""
_COLUMNS = ("number", "cell", "victim", "pause_s", "at_s", "status", "step_time_s", "paused_pct", "reason")


@dataclass(frozen=True)
class Point:
    """A repetition: the number of its cell, and what is stopped when and for how long; undisturbed without a victim."""

    number: int
    cell: int
    victim: str
    pause_s: float
    at_s: float


def points(disturbed: int, undisturbed: int, cells: Sequence[Cell], testbed: str) -> Iterator[Point]:
    """Yield all repetitions, in the order in which they are measured."""
    random = Random(f"pauses {testbed}")
    kinds = [True] * disturbed + [False] * undisturbed
    random.shuffle(kinds)
    for number, is_disturbed in enumerate(kinds):
        cell = number % len(cells)
        if not is_disturbed:
            yield Point(number, cell, "", 0.0, 0.0)
            continue
        seconds = _SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** random.random()
        victims = [*(f"worker {rank}" for rank in range(_WORKERS)), "relay", "controller"]
        if isinstance(cells[cell], CommandCell):
            victims += [f"program {rank}" for rank in range(_WORKERS)]
        if testbed == "docker":
            victims += [f"container {rank}" for rank in range(_WORKERS)] * 2
        yield Point(number, cell, random.choice(victims), round(seconds, 3), round(random.uniform(0.0, 2.4), 3))


def cells_of(testbed: str, folder: Path) -> list[Cell]:
    """The cells: our training with three algorithms, and a program."""
    (folder / "ring.py").write_text(_RING)
    found, python = [], sys.executable if testbed == "netns" else "python3"
    program = _COMMAND.format(python=python)
    for workload, algorithm in (*((_TRAINING, each) for each in _ALGORITHMS), (program, "")):
        text = _SPEC.format(workload=workload, algorithm=algorithm, workers=_WORKERS, testbed=testbed)
        if not algorithm:  # a program has its own, and ends when it likes
            text = text.replace("[algorithms]\n", "").replace('window = "32 steps"\n', "")
        spec = Spec.from_toml(text, str(folder / "pauses.toml"))
        found.append(next(c for c in make(spec, str(folder / "pauses.toml"), FixedHost()).cells if c.workers > 1))
    return found


class Disturbed:
    """A slot in which something is stopped for a time, counted from the first step or the start of a program."""

    def __init__(self, slot: Any, point: Point) -> None:
        self._slot, self._point = slot, point
        self._stopping: subprocess.Popen[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slot, name)

    def train(self, training: Any) -> Any:
        """Train, and stop the victim meanwhile."""

        def warm() -> None:
            training.warm()
            self._stop()

        return self._slot.train(replace(training, warm=warm))

    def events(self, *arguments: Any) -> Any:
        """Follow a program, and stop the victim meanwhile."""
        if self._stopping is None:
            self._stop()
        return self._slot.events(*arguments)

    def _stop(self) -> None:
        if self._point.victim:
            stop, go_on = _switches(self._slot, self._point.victim)
            script = f"sleep {self._point.at_s}; {stop}; sleep {self._point.pause_s}; {go_on}"
            self._stopping = subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL)

    def end(self) -> None:
        """Wait until the victim runs again."""
        if self._stopping is not None:
            self._stopping.wait()


def _switches(slot: Any, victim: str) -> tuple[str, str]:
    """The shell commands that stop a victim, and that let it go on."""
    kind, _, rank = victim.partition(" ")
    if kind in ("relay", "controller"):
        pid = str(slot.emulator.pid if kind == "relay" else os.getpid())
        return f"kill -STOP {pid}", f"kill -CONT {pid}"
    worker = slot._workers[int(rank)]
    if kind == "container":
        return f"docker pause {worker.container} >/dev/null", f"docker unpause {worker.container} >/dev/null"
    contained = hasattr(worker, "container")
    pid = f"$(docker inspect -f '{{{{.State.Pid}}}}' {worker.container})" if contained else str(worker.pid)
    if kind == "program":
        return f"programs=$(pgrep -P {pid}); kill -STOP $programs", "kill -CONT $programs"
    return f"worker={pid}; kill -STOP $worker", "kill -CONT $worker"


@contextmanager
def slots(testbed: str) -> Iterator[tuple[Any, Path]]:
    """Yield a slot of a testbed, and its control folder."""
    with control_folder() as control, processors_awake(), closing(opened(testbed, control)) as opened_:
        yield opened_.open_slot("relay"), control


def measured(point: Point, cell: Cell, slot: Any, control: Path) -> dict[str, Any]:
    """Measure a repetition. Return its line of the table."""
    disturbed = Disturbed(slot, point)
    line: dict[str, Any] = {**vars(point), "cell": cell.label}
    with tempfile.TemporaryDirectory() as folder:
        try:
            row: Mapping[str, Any] = measure(cell.repetition(0), disturbed, Path(folder), control, None)
        except RepFailed as error:
            row = {
                "status": "failed",
                "step_time_s": None,
                "paused_pct": None,
                "reason": " | ".join([str(error), *error.log_tail]),
            }
        finally:
            disturbed.end()
    return line | {name: row[name] for name in ("status", "step_time_s", "paused_pct", "reason")}


def errors(lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The error of every repetition by its number: relative to the valid undisturbed ones of its cell."""
    usual: dict[str, list[float]] = {}
    for line in lines:
        if not line["victim"] and line["status"] == "ok":
            usual.setdefault(line["cell"], []).append(float(line["step_time_s"]))
    return {
        line["number"]: float(line["step_time_s"]) / statistics.median(usual[line["cell"]]) - 1
        if line["step_time_s"] and line["cell"] in usual
        else None
        for line in lines
    }


def summary(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Print the table. Return whether both targets are met."""
    error_of = errors(lines)

    def row(name: str, chosen: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        ok = [line for line in chosen if line["status"] == "ok"]
        known = [abs(error) for line in chosen if (error := error_of[line["number"]]) is not None]
        published = [abs(error) for line in ok if (error := error_of[line["number"]]) is not None]
        wrong = sum(error > _LARGEST_ERROR for error in published)
        print(f"{name:28} {len(chosen):5} {sum(e > _LARGEST_ERROR for e in known):9} {len(chosen) - len(ok):8}"
              f" {len(ok):10} {wrong:13} {100 * max(published, default=0):9.1f} %")  # fmt: skip
        return wrong, len(chosen) - len(ok)

    print(f"{'stopped':28} {'reps':>5} {'error>5 %':>9} {'refused':>8} {'published':>10} {'published>5 %':>13}"
          f" {'largest':>11}")  # fmt: skip
    disturbed = [line for line in lines if line["victim"]]
    for victim in sorted({line["victim"].split()[0] for line in disturbed}):
        row(victim, [line for line in disturbed if line["victim"].split()[0] == victim])
    wrong, _ = row("all of these", disturbed)
    undisturbed = [line for line in lines if not line["victim"]]
    _, refused = row("nothing", undisturbed)
    for line in undisturbed:
        if line["status"] != "ok":
            print(f"  {line['number']} {line['cell']} refused: {line['reason']}")
    for line in disturbed:
        error = error_of[line["number"]]
        if line["status"] == "ok" and error is not None and abs(error) > _LARGEST_ERROR:
            what = f"{line['victim']} stopped for {line['pause_s']} s"
            print(f"  {line['number']} {line['cell']} {what}: published, {error:+.1%}")
    return wrong == 0 and refused < _MOST_REFUSED * max(1, len(undisturbed))


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [line for line in csv.DictReader(lines) if line["reason"] is not None]  # not one cut short


@contextmanager
def _image() -> Iterator[None]:
    """Let containers see the files of this host, if there is no image with wanbench."""
    from docker import APIClient

    from tests.support import host_image
    from wanbench.harness.testbeds.docker.daemon import IMAGE, Daemon

    with closing(APIClient(base_url=Daemon().address, version="auto")) as client:
        if client.images(os.environ.get("WANBENCH_IMAGE", IMAGE)):
            yield
            return
        os.environ["WANBENCH_IMAGE"] = name = f"wanbench-pauses-{os.getpid()}"
        host_image.make(client, name)
        host_image.share()
        try:
            yield
        finally:
            client.remove_image(name, force=True)


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "pauses", help="folder of the table")
    parser.add_argument("--disturbed", type=int, default=200)
    parser.add_argument("--undisturbed", type=int, default=100)
    parser.add_argument("--testbed", choices=("netns", "docker"), default="netns")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{asked.testbed}.csv"
    cells = cells_of(asked.testbed, asked.out.resolve())
    done = {int(line["number"]) for line in _read(file)}
    todo = [
        each for each in points(asked.disturbed, asked.undisturbed, cells, asked.testbed) if each.number not in done
    ]
    if todo:
        with _image() if asked.testbed == "docker" else nullcontext():
            _measure_all(todo, cells, asked.testbed, file)
    return 0 if summary(_read(file)) else 1


def _measure_all(todo: Sequence[Point], cells: Sequence[Cell], testbed: str, file: Path) -> None:
    """Measure, and append a line for each repetition to the file."""
    began = time.monotonic()
    with slots(testbed) as (slot, control), file.open("a", newline="") as lines:
        table = csv.DictWriter(lines, _COLUMNS)
        if lines.tell() == 0:
            table.writeheader()
        for count, point in enumerate(todo, 1):
            line = measured(point, cells[point.cell], slot, control)
            table.writerow({**line, "reason": line["reason"] or ""})
            lines.flush()
            left_s = (time.monotonic() - began) / count * (len(todo) - count)
            what = f"{point.victim} {point.pause_s:.2f} s" if point.victim else "undisturbed"
            took = "-" if line["step_time_s"] is None else f"{line['step_time_s']:.4f}"
            text = (
                f"{count}/{len(todo)} ETA {left_s / 60:.0f} min  {line['cell']:10} {what:20} {line['status']:7} {took}"
            )
            print(f"{text}  {line['reason'] or ''}"[:200], flush=True)


if __name__ == "__main__":
    sys.exit(main())
