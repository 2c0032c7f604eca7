"""Kill workers of built-in trainers at random moments, and compare what is left with the simulated clock.

    python benchmarks/kills.py [--out build/kills] [--moments 50] [--only dts]

Four workers on world4 train a model of 20,000 parameters with each algorithm in turn. At each random moment one worker
is killed for a random time or for good, or two at once, or the lowest rank. Moment number i is always the same. The
same kills are simulated, and goodput is compared with the undisturbed cell of the same testbed. Lines in OUT/kills.csv
are not measured again. The exit code is 1 if a repetition fails, if replicas do not agree as the algorithm promises, if
anything is left on the host, or if a goodput is more than 10 % from the simulated one. Run it on an idle host.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.leftovers import host_state  # noqa: E402
from wanbench.harness.errors import RepFailed  # noqa: E402
from wanbench.harness.plan.auto import FixedHost  # noqa: E402
from wanbench.harness.plan.cell import TrainingCell  # noqa: E402
from wanbench.harness.plan.plan import make  # noqa: E402
from wanbench.harness.process.priority import processors_awake  # noqa: E402
from wanbench.harness.rep.measure import measure  # noqa: E402
from wanbench.harness.run.host import control_folder  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402
from wanbench.harness.testbeds import opened  # noqa: E402

WORKERS, STEP_S, STEPS = 4, 0.1, 100
AGREE, APART = 1e-4, 0.10
_UNDISTURBED = 3
_ALGORITHMS = {
    "ssgd": "ssgd = {}",
    "dts": "dts = { delay = 4, period = 4 }",
    "diloco": "diloco = { period = 10 }",
    "sgp": "sgp = {}",
    "async-local-sgd": "async-local-sgd = { period = 10 }",
}
_SPEC = """
schema = 1
name = "kills"
[workload]
params = 20_000
tensors = 2
step_time = "{step_ms}ms"
[network]
profile = "world4"
tcp = {{ congestion = "reno", slow_start_after_idle = false }}
[algorithms]
{algorithm}
[sweep]
workers = [{workers}]
[train]
until = "{steps} steps"
[run]
testbed = "{testbed}"
emulator = "relay"
{kills}
"""
_COLUMNS = ("number", "algorithm", "kills", "status", "changes", "spread", "goodput", "simulated", "apart", "reason")


@dataclass(frozen=True)
class Point:
    """One repetition: the kills as (worker, second, duration in s or None for good)."""

    number: int
    algorithm: str
    kills: tuple[tuple[int, float, float | None], ...]

    @property
    def text(self) -> str:
        """The kills in words."""
        return "; ".join(f"{rank} at {at:g} s" + ("" if s is None else f" for {s:g} s") for rank, at, s in self.kills)


def points(moments: int) -> Iterator[Point]:
    """Yield the repetitions: in turn one worker, two at once, and the lowest rank."""
    names = list(_ALGORITHMS)
    for number in range(moments):
        random = Random(f"kills {number}")
        at = round(random.uniform(0.0, STEPS * STEP_S), 3)
        ranks = [0] if number % 4 == 3 else random.sample(range(WORKERS), 2 if number % 4 == 2 else 1)
        kills = tuple(
            (rank, at, round(random.uniform(0.5, 4.0), 3) if random.random() < 0.7 else None) for rank in ranks
        )
        yield Point(number, names[number % len(names)], kills)


def cell_of(algorithm: str, kills: Sequence[tuple[int, float, float | None]], testbed: str) -> TrainingCell:
    """Return a cell with these kills."""
    entries = "".join(
        f'\n[[timeline]]\nat = "{at}s"\nwhere = {rank}\nkill = true\n' + ("" if s is None else f'for = "{s}s"\n')
        for rank, at, s in kills
    )
    text = _SPEC.format(
        step_ms=round(STEP_S * 1e3), algorithm=_ALGORITHMS[algorithm], workers=WORKERS, steps=STEPS, testbed=testbed,
        kills=entries,
    )  # fmt: skip
    (cell,) = (c for c in make(Spec.from_toml(text, "kills.toml"), "kills.toml", FixedHost()).cells if c.workers > 1)
    assert isinstance(cell, TrainingCell)
    return cell


class Bench:
    """One slot of a testbed, and the undisturbed step times that it has measured."""

    def __init__(self, testbed: str, slot: Any, control: Path) -> None:
        self._testbed, self._slot, self._control = testbed, slot, control
        self._undisturbed: dict[str, float] = {}

    def row(self, algorithm: str, kills: Sequence[tuple[int, float, float | None]], rep: int = 0) -> Mapping[str, Any]:
        """Measure a repetition. Raises: RepFailed."""
        with tempfile.TemporaryDirectory() as folder:
            return measure(
                cell_of(algorithm, kills, self._testbed).repetition(rep), self._slot, Path(folder), self._control, None
            )

    def goodput(self, algorithm: str, row: Mapping[str, Any]) -> float:
        """Return the goodput of a row, relative to the median of undisturbed repetitions."""
        if algorithm not in self._undisturbed:
            reps = 1 if self._testbed == "virtual" else _UNDISTURBED
            times = [self.row(algorithm, (), rep)["step_time_s"] for rep in range(reps)]
            self._undisturbed[algorithm] = statistics.median(times)
        undisturbed_s = self._undisturbed[algorithm]
        return float(row["counted_steps"] * undisturbed_s / (WORKERS * row["step_time_s"] * row["steps"]))


def measured(point: Point, real: Bench, simulated: Bench) -> dict[str, Any]:
    """Measure a repetition on both testbeds. Return its line of the table."""
    line: dict[str, Any] = {"number": point.number, "algorithm": point.algorithm, "kills": point.text}
    try:
        row = real.row(point.algorithm, point.kills)
    except RepFailed as error:
        return line | {"status": "failed", "reason": " | ".join([str(error), *error.log_tail])}
    goodput = real.goodput(point.algorithm, row)
    expected = simulated.goodput(point.algorithm, simulated.row(point.algorithm, point.kills))
    return line | {
        "status": row["status"],
        "changes": row["membership_changes"],
        "spread": row["replica_spread"],
        "goodput": goodput,
        "simulated": expected,
        "apart": goodput / expected - 1,
        "reason": row["reason"],
    }


def summary(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Print the table. Return whether all targets are met."""
    failed, apart = 0, 0
    print(f"{'algorithm':20} {'reps':>5} {'failed':>7} {'invalid':>8} {'median apart':>13} {'largest':>9}")
    for algorithm in _ALGORITHMS:
        mine = [line for line in lines if line["algorithm"] == algorithm]
        ok = [float(line["apart"]) for line in mine if line["status"] == "ok"]
        if mine:
            lost = sum(line["status"] == "failed" for line in mine)
            print(f"{algorithm:20} {len(mine):5} {lost:7} {len(mine) - len(ok) - lost:8}"
                  f" {statistics.median(ok or [0.0]):+13.1%} {max(ok or [0.0], key=abs):+9.1%}")  # fmt: skip
            failed, apart = failed + lost, apart + sum(abs(each) > APART for each in ok)
    for line in lines:
        if line["status"] != "ok" or abs(float(line["apart"])) > APART:
            found = f"goodput {line['goodput']}, simulated {line['simulated']}" if line["goodput"] else line["reason"]
            print(f"  {line['number']} {line['algorithm']}, {line['kills']}: {line['status']}, {found}")
    print(f"{failed} failed, {apart} of {len(lines)} more than {APART:.0%} from the simulated goodput")
    return failed == 0 and apart == 0


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kills", help="folder of the table")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--only", help="one algorithm")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "kills.csv"
    done = {int(line["number"]) for line in _read(file)}
    chosen = [each for each in points(asked.moments) if asked.only in (None, each.algorithm)]
    before = host_state()
    wrong = _measure_all([each for each in chosen if each.number not in done], file)
    left = [what for now, then in zip(host_state(), before, strict=True) for what in sorted(now - then)]
    met = summary([line for line in _read(file) if asked.only in (None, line["algorithm"])])
    print(f"left on the host: {', '.join(left) or 'nothing'}; replicas that do not agree: {wrong}")
    return 0 if met and not left and not wrong else 1


def _measure_all(todo: Sequence[Point], file: Path) -> int:
    """Measure, and append a line for each repetition to the file. Return how often replicas did not agree."""
    if not todo:
        return 0
    began, wrong = time.monotonic(), 0
    with (
        control_folder() as control,
        processors_awake(),
        closing(opened("netns", control)) as real,
        closing(opened("virtual", control)) as virtual,
        file.open("a", newline="") as lines,
    ):
        benches = Bench("netns", real.open_slot("relay"), control), Bench("virtual", virtual.open_slot(""), control)
        table = csv.DictWriter(lines, _COLUMNS)
        if lines.tell() == 0:
            table.writeheader()
        for count, point in enumerate(todo, 1):
            line = measured(point, *benches)
            agrees = cell_of(point.algorithm, (), "virtual").algorithm().promises.agrees
            wrong += agrees and (line.get("spread") or 0.0) > AGREE
            table.writerow({**line, "reason": line["reason"] or ""})
            lines.flush()
            left_s = (time.monotonic() - began) / count * (len(todo) - count)
            apart = f"{line['apart']:+.1%}" if "apart" in line else line["reason"]
            print(f"[{count}/{len(todo)}] {point.algorithm}, {point.text}: {line['status']}, {apart}"
                  f"   ({left_s / 60:.0f} min left)", file=sys.stderr)  # fmt: skip
    return wrong


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [line for line in csv.DictReader(lines) if line["reason"] is not None]  # not one cut short


if __name__ == "__main__":
    sys.exit(main())
