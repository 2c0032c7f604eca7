"""Values that repeat exactly and have no noise, so that any change counts.

The simulated clock counts whole nanoseconds, and messages and bytes are counted on every testbed. Loss and accuracy
depend on the rounding of floating-point numbers and can differ between machines, so they have a tolerance band. So do
the bytes on the wire of a program, which include acknowledgements and what TCP sends again.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from wanbench.harness.gate.rule import NOISE_LIMIT
from wanbench.harness.gate.verdict import Judgement, Row, Verdict, by_name
from wanbench.harness.results.columns import MORE_IS_BETTER
from wanbench.harness.spec.tables import GateTable

Entry = Mapping[str, Any]

COUNTS = ("payload_bytes", "messages_sent")
TIMES = ("step_time_s", "scalability")
VALUES = ("final_loss", "accuracy")
WIRE = "wire_bytes_per_step"
WIRE_BAND = 0.05
_WIDEST_BAND = 2 * NOISE_LIMIT
COMPARED = (*COUNTS, *TIMES, *VALUES, WIRE)
GONE = "in the baseline, but not in this run"
_FIRST_MISSING = "the first repetition is missing"
_SMALL_PCT = 0.001  # below, a change is shown with all digits


def entries(rows: Iterable[Row]) -> dict[str, Entry]:
    """The exact values of the first repetition of every cell whose repetitions are all valid, by name; no None."""
    values: dict[str, Entry] = {}
    for cell, group in by_name(rows).items():
        row = group[0]
        if any(map(why_failed, group)) or row["rep"] != 0:
            continue
        fields = ("steps", *COUNTS, *(TIMES if row["testbed"] == "virtual" else ()), *VALUES)
        wire = [nbytes for nbytes in map(wire_bytes_per_step, group) if nbytes is not None]
        values[cell] = {
            "testbed": row["testbed"],
            **{key: row[key] for key in fields if row.get(key) is not None},
            **({WIRE: statistics.median(wire)} if wire else {}),
        }
    return values


def wire_bytes_per_step(row: Row) -> float | None:
    """The bytes that a program's workers sent in a step, or in all if it reports no steps; None for our own loop."""
    counted = row.get("command") is not None and row.get("wire_bytes") is not None
    return row["wire_bytes"] / (row.get("steps_total") or 1) if counted else None


def why_failed(row: Row) -> str | None:
    """The reason why a repetition counts as failed; None if it does not."""
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    diverged = [key for key in VALUES if row.get(key) is not None and not math.isfinite(row[key])]
    return f"{diverged[0]} is {row[diverged[0]]}" if diverged else None


def compare(
    base: Mapping[str, Entry], rows: Iterable[Row], gate: GateTable, band: Callable[[str], float] = lambda _: WIRE_BAND
) -> list[Judgement]:
    """One judgement for every cell of either side.

    Args:
        base: the result of `entries` in the baseline.
        rows: of the head, one per repetition. gate: the tolerances.
        band: the relative change of a cell's bytes on the wire that does not count.
    """
    rows = list(rows)
    head, groups = entries(rows), by_name(rows)
    return [
        _finding(cell, groups.get(cell, ()), base.get(cell), head.get(cell), gate, band(cell))
        for cell in sorted(base.keys() | groups.keys())
    ]


def _finding(
    cell: str, rows: Sequence[Row], base: Entry | None, head: Entry | None, gate: GateTable, band: float
) -> Judgement:
    """Judge a cell by its rows of the head, and the values of both sides; None if a side has none."""
    if not rows:
        return Judgement(cell, Verdict.NOT_COMPARABLE, GONE)
    if head is None:
        return Judgement(cell, Verdict.FAILED, next(filter(None, map(why_failed, rows)), _FIRST_MISSING))
    if base is None:
        return Judgement(cell, Verdict.NEW, "not in the baseline")
    other = [
        f"{key} {base.get(key)} -> {head.get(key)}" for key in ("testbed", "steps") if base.get(key) != head.get(key)
    ]
    if other:
        return Judgement(cell, Verdict.NOT_COMPARABLE, ", ".join(other))
    diverged = [
        key for key in VALUES if key in base.keys() & head.keys() and not near(base[key], head[key], gate.loss_band)
    ]
    if diverged:
        reason = ", ".join(change(key, base[key], head[key]) for key in diverged)
        return Judgement(cell, Verdict.FAILED, f"{reason}, outside ±{100 * gate.loss_band:g} %")
    appeared = [key for key in COMPARED if (key in base) != (key in head)]
    if appeared:
        reason = ", ".join(f"{key} is only in the {'base' if key in base else 'head'}" for key in appeared)
        return Judgement(cell, Verdict.NOT_COMPARABLE, reason)
    tolerances = {**dict.fromkeys((*TIMES, *COUNTS), gate.tolerance), WIRE: band}
    changed = [key for key, most in tolerances.items() if key in base and not near(base[key], head[key], most)]
    reason = ", ".join(change(key, base[key], head[key]) for key in changed)
    if any((head[key] < base[key]) == (key in MORE_IS_BETTER) for key in changed):
        return Judgement(cell, Verdict.REGRESSED, reason)
    if WIRE in base and band > _WIDEST_BAND:
        wide = f"{WIRE} of equal sides may differ by {100 * band:.0f} % here; the limit is {100 * _WIDEST_BAND:.0f} %"
        return Judgement(cell, Verdict.INCONCLUSIVE, f"{wide}; measure the noise again with --aa on a quieter host")
    return Judgement(cell, Verdict.IMPROVED if changed else Verdict.UNCHANGED, reason)


def near(base: float, head: float, tolerance: float) -> bool:
    """True within a relative tolerance."""
    return abs(head - base) <= tolerance * abs(base)


def change(key: str, base: float, head: float) -> str:
    """A change as "messages_sent 20 -> 40 (+100 %)"."""
    if not base:
        return f"{key} {base:g} -> {head:g}"
    percent = 100 * (head / base - 1)
    if abs(percent) < _SMALL_PCT:
        return f"{key} {base} -> {head} (by less than {_SMALL_PCT:g} %)"
    return f"{key} {_number(base)} -> {_number(head)} ({percent:+.3g} %)"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
