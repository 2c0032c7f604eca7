"""What a figure shows, in one sentence that is computed from the values it draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.best import REFERENCE, TIE_SHARE, megabytes_per_step
from wanbench.harness.analysis.order import absent
from wanbench.harness.analysis.summary import Pivot, axis_value
from wanbench.harness.show.figures.names import human
from wanbench.workloads.algorithms.registry import BUILT_IN

_FAR_MS = 500.0  # about the longest round trip on the Internet

Line = Mapping[str, Any]


def speed(pivot: Pivot) -> str | None:
    """ "At 500 ms, SSGD keeps 36 % of its speed; DTS 99 %"; None if no scalability is known."""
    found = _pair(pivot)
    if found is None:
        return None
    column, slow, fast = found
    kept = percent(slow["scalability"])
    if slow is fast:
        return f"{place(pivot, column)}, {_name(pivot, column, slow)} keeps {kept} of its speed"
    names = [_name(pivot, column, line) for line in (slow, fast)]
    verb = " keeps" if names[1].endswith("%") else ""
    text = f"{place(pivot, column)}, {names[0]} keeps {kept} of its speed"
    return f"{text}; {names[1]}{verb} {percent(fast['scalability'])}"


def waiting(pivot: Pivot) -> str | None:
    """ "At 500 ms, SSGD waits 64 % of its time; DTS 0 %"; of a user's program, the step times."""
    found = _pair(pivot)
    if found is None:
        return None
    column, slow, fast = found
    names = [_name(pivot, column, line) for line in (slow, fast)]
    if any(math.isnan(line["stall_s"]) for line in (slow, fast)):
        first, second = (f"{line['step_time_s']:.3g} s" for line in (slow, fast))
        text = f"a step of {names[0]} takes {first}"
        return f"{place(pivot, column)}, {text}" + ("" if slow is fast else f"; of {names[1]} {second}")
    shares = [percent(line["stall_s"] / line["step_time_s"]) for line in (slow, fast)]
    text = f"{place(pivot, column)}, {names[0]} waits {shares[0]} of its time"
    text = text if slow is fast else f"{text}; {names[1]} {shares[1]}"
    return text if absent(slow.get("fastest_step_time_s")) else f"{text} (slowest worker)"


def column_of(pivot: Pivot) -> Any:
    """The column that the finding is about; None if there is none."""
    found = _pair(pivot)
    return None if found is None else found[0]


def _pair(pivot: Pivot) -> tuple[Any, Line, Line] | None:
    """A column, its reference (ssgd, else the slowest), and its fastest algorithm; equally fast ones by bytes sent."""
    columns: dict[Any, tuple[Line, Line]] = {}
    for column in pivot.columns:
        lines = [pivot.lines[label, column] for label in pivot.algorithms if (label, column) in pivot.lines]
        known = [line for line in lines if line["status"] == "ok" and line["scalability"] > 0]
        if not known:
            continue
        slow = min(known, key=lambda line: (line["kind"] != REFERENCE, line["scalability"]))
        top = max(line["scalability"] for line in known) * (1 - TIE_SHARE)
        fast = min((line for line in known if line["scalability"] >= top), key=_sent)
        columns[column] = (slow, fast)
    if not columns:
        return None
    if pivot.column_axis == "rtt_ms":
        near = [column for column in columns if column <= _FAR_MS]
        chosen = max(near) if near else min(columns)
    else:
        chosen = max(columns, key=lambda c: columns[c][1]["scalability"] / columns[c][0]["scalability"])
    return (chosen, *columns[chosen])


def _sent(line: Line) -> tuple[float, float]:
    sent = megabytes_per_step(line)
    sent = line.get("payload_bytes") if sent is None else sent
    return math.inf if absent(sent) else float(sent or 0), -line["scalability"]


def _name(pivot: Pivot, column: Any, line: Line) -> str:
    """The family if all its settings drawn score the same in this column, else the algorithm."""
    family = [one for (_, at), one in pivot.lines.items() if at == column and one["kind"] == line["kind"]]
    name = BUILT_IN[line["kind"]].name if line["kind"] in BUILT_IN else ""
    if name and len({percent(one["scalability"]) for one in family}) == 1:
        return name
    return human(str(line["algorithm"]), str(line["kind"]), line["params"])


def place(pivot: Pivot, column: Any) -> str:
    """ "At 500 ms", "On 16 workers", "On world4"."""
    if pivot.column_axis == "rtt_ms":
        return f"At {column:g} ms"
    on = pivot.column_axis in {"workers", "profile", "workload", "collective", "tcp", "testbed", "emulator"}
    return f"{'On' if on else 'At'} {axis_value(pivot.column_axis, column)}"


def percent(share: float) -> str:
    """ "36 %", "0.8 %"."""
    if math.isnan(share):
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.0095 or share < 5e-4 else f"{100 * share:.1g} %"


def names_of(pivot: Pivot) -> dict[str, str]:
    """Label -> the name that is drawn."""
    lines: Sequence[tuple[str, Line]] = [(label, line) for (label, _), line in pivot.lines.items()]
    return {label: human(label, str(line["kind"]), line["params"]) for label, line in lines}
