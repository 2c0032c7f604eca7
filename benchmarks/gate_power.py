"""How often the gate is wrong: checks of equal sides and of planted slowdowns, from rounds measured on this host.

    python benchmarks/gate_power.py measure --out FOLDER     emulates for two hours; the same command goes on
    python benchmarks/gate_power.py record FOLDER            writes results/reference/gate-power
    python benchmarks/gate_power.py draw                     draws its figure again

A round measures on namespaces and the relay: the base, the same once more, and the base with a computation that is
longer by 3, 5, 10 and 20 % of the base's step. The link is fast and the step short, which is hard on the gate: what
disturbs a host is then a larger share of a step. Five consecutive rounds are one check, or ten if the first look is in
doubt. They are judged by the code of `wanbench check`, with its default limit of 5 % and without a
measured noise. In a real check each side has a process of its own; here one starts the workers of both. The recorded
rounds shared their host with other work, and most ran with WANBENCH_AWAKE=off.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.gate.measured import Sides, findings, further  # noqa: E402
from wanbench.harness.gate.noise import HostNoise  # noqa: E402
from wanbench.harness.gate.rule import LOOKS  # noqa: E402
from wanbench.harness.gate.verdict import Verdict  # noqa: E402
from wanbench.harness.results.store import RunFolder  # noqa: E402
from wanbench.harness.show.figures.drawing import save  # noqa: E402
from wanbench.harness.show.figures.layout import Panels  # noqa: E402
from wanbench.harness.show.figures.style import COLUMN_IN, INK, PAGE_IN, wanbench_style  # noqa: E402
from wanbench.harness.spec.tables import GateTable  # noqa: E402

FOLDER = ROOT / "results/reference/gate-power"
STEP_MS = 24  # of the base, measured
SPEC_LINK = "5 ms and 100 Mbit/s apart"
COMPUTE_MS = 10
SLOWDOWNS = (0.03, 0.05, 0.10, 0.20)
NAME = "gate-power"
MADE = ("git", "kernel", "cpu", "cores", "python", "versions")
SPEC = """
schema = 1
name = "gate-power"

[workload]
params = 25_000
tensors = 4
step_time = "10ms"
step_cv = 0.02

[network]
rate = "100Mbit"
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
base = { kind = "ssgd" }
equal = { kind = "ssgd" }

[sweep]
workers = [2]
rtt = ["5ms"]

[run]
testbed = "netns"
"""
_LONGER = """
[[sweep.include]]
algorithm = "base"
workers = 2
rtt = "5ms"
"workload.step_time" = "{}ms"
"""
_IDENTITY = ("algorithm", "kind", "params", "axes", "cell", "cell_key", "code")


def compute_ms(slowdown: float) -> float:
    """How long a worker computes in a step that is longer by this share of the base's."""
    return round(COMPUTE_MS + slowdown * STEP_MS, 2)


def spec() -> str:
    """The sweep of a round: the base, its equal, and the base with longer computations."""
    return SPEC + "".join(_LONGER.format(compute_ms(slowdown)) for slowdown in SLOWDOWNS)


def measure(out: Path, rounds: int) -> int:
    """Measure up to this many rounds; returns the exit status of `wanbench run`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{NAME}.toml").write_text(spec())
    options = ("--no-figures", "--jobs", "1", "--out", ".", "--set", f"run.repeats={rounds}")
    command = [sys.executable, "-P", "-m", "wanbench.harness.cli", "run", f"{NAME}.toml", *options]
    return subprocess.run(command, cwd=out).returncode


def planted(row: Mapping[str, Any]) -> float | None:
    """The slowdown of a row's step; 0 for the equal side, None for the base."""
    if row["algorithm"] == "equal":
        return 0.0
    longer = dict(row["axes"]).get("workload.step_time")
    return next((slowdown for slowdown in SLOWDOWNS if longer == f"{compute_ms(slowdown)}ms"), None)


def checks(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the outcomes of the checks of each slowdown. A check takes the rounds after those of the one before."""
    sides: dict[float | None, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        if row["workers"] > 1 and row["status"] == "ok":
            sides.setdefault(planted(row), {})[row["rep"]] = row
    base = sides[None]
    for slowdown in (0.0, *SLOWDOWNS):
        head = sides[slowdown]
        remaining = sorted(base.keys() & head.keys())
        number = 0
        while len(remaining) >= LOOKS[-1]:
            outcome = _judged(base, head, remaining[: LOOKS[-1]])
            yield {"check": number, "slowdown_pct": round(100 * slowdown), **outcome}
            number, remaining = number + 1, remaining[outcome["rounds"] :]


def _judged(base: Mapping[int, Any], head: Mapping[int, Any], block: Sequence[int]) -> dict[str, Any]:
    """Judge one check as `wanbench check` does: after the first look, and after the second where that is in doubt."""
    gate, noise = GateTable(), HostNoise({})
    sides, rounds = _sides(base, head, block[: LOOKS[0]], gate), LOOKS[0]
    cells, together = findings(sides, gate, len(LOOKS), noise)
    if further(sides, gate, len(LOOKS), noise):
        regressed = [finding.cell for finding in cells if finding.verdict is Verdict.REGRESSED]
        sides, rounds = _sides(base, head, block, gate), LOOKS[-1]
        cells, together = findings(sides, gate, len(LOOKS), noise, regressed)
    (cell,) = cells
    assert cell.timing is not None, "all repetitions are valid"
    return {
        "rounds": rounds,
        "change_pct": 100 * (cell.timing.change or 0.0),
        "low_pct": 100 * (cell.timing.low or 0.0),
        "high_pct": 100 * (cell.timing.high or 0.0),
        "cell": str(cell.verdict),
        "all_cells": "" if together is None else str(together.verdict),
    }


def _sides(base: Mapping[int, Any], head: Mapping[int, Any], block: Sequence[int], gate: GateTable) -> Sides:
    """Both sides of some rounds, as the same cell; rounds count from 0 in each check."""
    same = {name: base[block[0]][name] for name in _IDENTITY if name in base[block[0]]}
    before, after = ([{**side[rep], **same, "rep": i} for i, rep in enumerate(block)] for side in (base, head))
    return Sides(before, after, gate)


def record(out: Path) -> None:
    """Write the checks, and the step times that they are made of."""
    rows = RunFolder(out / NAME).read().rows
    made = json.loads((out / NAME / "manifest.json").read_text())
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = list(checks(rows))
    write_csv(FOLDER / "checks.csv", outcomes)
    write_csv(FOLDER / "step_times.csv", _step_times(rows))
    (FOLDER / "manifest.json").write_text(json.dumps({key: made[key] for key in MADE}, indent=1) + "\n")
    for slowdown in (0.0, *SLOWDOWNS):
        lines = [line for line in outcomes if line["slowdown_pct"] == round(100 * slowdown)]
        cell, together = (dict(Counter(line[name] for line in lines)) for name in ("cell", "all_cells"))
        print(f"{slowdown:.0%} slower: {len(lines)} checks: each cell {cell}; all cells {together}")


def _step_times(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The step time of each side in each round, in ms; empty if the repetition is not valid."""
    lines = []
    for row in rows:
        if row["workers"] > 1:
            slowdown = planted(row)
            line = {
                "round": row["rep"],
                "side": "base" if slowdown is None else "head",
                "slowdown_pct": None if slowdown is None else round(100 * slowdown),
                "step_time_ms": 1e3 * row["step_time_s"] if row["status"] == "ok" else None,
            }
            lines.append(line)
    return sorted(lines, key=lambda line: (line["round"], line["side"], line["slowdown_pct"] or 0))


def draw() -> None:
    """Draw the outcomes that are recorded."""
    with (FOLDER / "checks.csv").open() as file:
        outcomes = [*csv.DictReader(file)]
    for width_in, names in ((PAGE_IN, ("gate-power.svg", "gate-power.png")), (COLUMN_IN, ("gate-power-column.pdf",))):
        for name in names:
            with wanbench_style():
                print(save(figure(outcomes, width_in), FOLDER / name))


VERDICTS: Mapping[str, Mapping[str, Any]] = {
    "regressed": {"facecolor": "#B5483F", "edgecolor": INK},
    "inconclusive": {"facecolor": "#FFFFFF", "edgecolor": INK, "hatch": "////"},
    "unchanged": {"facecolor": "#C9DDF0", "edgecolor": INK},
}
RULES = {"cell": "each cell: slower by over 5 %", "all_cells": "all cells together: by over 1 %"}


def title(outcomes: Sequence[Mapping[str, str]]) -> str:
    """What the outcomes show: false alarms, and the smallest slowdown from which none was missed."""
    failed = {
        share: [line["slowdown_pct"] == share and "regressed" in (line["cell"], line["all_cells"]) for line in outcomes]
        for share in dict.fromkeys(line["slowdown_pct"] for line in outcomes)
    }
    counts = Counter(line["slowdown_pct"] for line in outcomes)
    seen = [share for share in failed if share != "0" and sum(failed[share]) == counts[share]]
    certain = sum(counts[share] for share in seen)
    detected = f", {certain} of {certain} with a slowdown of {seen[0]} % or more" if seen else ""
    return f"Failed by either rule: {sum(failed['0'])} of {counts['0']} checks of equal sides{detected}"


def figure(outcomes: Sequence[Mapping[str, str]], width_in: float) -> Figure:
    """The share of checks with each verdict by planted slowdown, by the rule for a cell and by that for all cells."""
    about = (
        "a check fails if a cell regressed, or all cells together; "
        f"emulated with the relay: two workers, a step of {STEP_MS} ms, {SPEC_LINK}; 5 or 10 rounds a check; both "
        "sides in one process, while the host did other work"
    )
    entries = {verdict: Patch(**look, linewidth=0.6) for verdict, look in VERDICTS.items()}
    sheet = Panels(width_in, f"{title(outcomes)}\nOutcomes of `wanbench check` by planted slowdown", about, entries,
                   count=2, across=2 if width_in > COLUMN_IN else 1, panel_in=1.5, between_in=0.3)  # fmt: skip
    for index, (column, rule) in enumerate(RULES.items()):
        _bars(sheet.panel(index, rule), outcomes, column)
        sheet.label(index, "planted slowdown (%)", "checks (%)")
    return sheet.figure


def _bars(axes: Axes, outcomes: Sequence[Mapping[str, str]], column: str) -> None:
    shares = list(dict.fromkeys(line["slowdown_pct"] for line in outcomes))
    for x, share in enumerate(shares):
        verdicts = Counter(line[column] for line in outcomes if line["slowdown_pct"] == share)
        bottom = 0.0
        for verdict, look in VERDICTS.items():
            part = 100 * verdicts[verdict] / verdicts.total()
            axes.bar(x, part, 0.7, bottom=bottom, linewidth=0.6, **look)
            if part >= 8:
                axes.text(x, bottom + part / 2, f"{part:.0f}", ha="center", va="center", fontsize=6.5,
                          color="white" if verdict == "regressed" else INK,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}
                          if verdict == "inconclusive" else None)  # fmt: skip
            bottom += part
    axes.set_xticks(range(len(shares)), shares)
    axes.set_ylim(0, 100)


def write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write lines with equal keys; numbers have three digits after the point."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()} for line in lines)


def main() -> int:
    """Measure, or record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = options.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--rounds", type=int, default=1000)
    measuring.add_argument("--out", type=Path, required=True)
    commands.add_parser("record").add_argument("out", type=Path)
    commands.add_parser("draw")
    asked = options.parse_args()
    if asked.command == "measure":
        return measure(asked.out.resolve(), asked.rounds)
    if asked.command == "record":
        record(asked.out)
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
