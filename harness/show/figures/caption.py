"""The words around a figure: its subject, and a caption with the conditions, so that it can stand alone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wanbench.harness.analysis.order import absent
from wanbench.harness.analysis.summary import Pivot, axis_value, law_inputs, provenance, rate_text
from wanbench.harness.show.grid import shown

Line = Mapping[str, Any]

_DASHED = {True: "dashed, without markers", False: "dashed outlines"}  # of curves, of bars
_UNIT = re.compile(r"(\d) (%|ms|s|kB|MB|GB|Mbit/s|Gbit/s)(?!\w)")  # a number and its unit stay in one line


def subject(pivot: Pivot) -> str:
    """What was synchronised, and how: "resnet50-v100, direct all-reduce, 8 workers".

    The cost of a byte depends on the message size with gloo. Its scaled runs are therefore named by the size that was
    sent, not by a workload of another size.
    """
    lines = list(pivot.lines.values())
    size = message_size(pivot)
    scaled_gloo = any(line["collective"] == "gloo" and line["payload_scale"] < 1 for line in lines)
    workload = f"{size} messages" if scaled_gloo and size else _each(lines, "workload")
    fixed = {k: v for k, v in pivot.fixed.items() if k not in {"collective", "workload"}}
    return ", ".join([workload, *_all_reduce(lines), *(axis_value(axis, value) for axis, value in fixed.items())])


def titled(pivot: Pivot, finding: str | None) -> str:
    """The two lines of a title: the finding; the subject and its network."""
    return f"{finding or 'Scalability'}\n{on_network(pivot)}"


def on_network(pivot: Pivot) -> str:
    """The subject, and whether its network is emulated or simulated."""
    network = provenance(line["testbed"] for line in pivot.lines.values())
    return f"{pivot.heading or subject(pivot)}; {network} network"


def message_size(pivot: Pivot) -> str | None:
    """The true size of the largest message of a run, scale applied, as "1.0 MB"; None if no row recorded it.

    The largest message is the whole model. Compressed messages and fragments are smaller.
    """
    sizes = [inputs.message_bytes for line in pivot.lines.values() if (inputs := law_inputs(line))]
    most = max((size for size in sizes if size > 0), default=None)
    if most is None:
        return None
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if most >= scale:
            return f"{most / scale:.1f} {unit}"
    return f"{most} B"


def caption(
    pivot: Pivot, run_name: str, marks: str | None, progress: str | None = None, *, whiskers: bool = True
) -> str:
    """Testbed, workload, scale, network, collective, repetitions.

    Args:
        pivot: what is drawn. run_name: the first word. marks: explains what is drawn, if it needs words.
        progress: of a run that is not finished, "14 of 42 cells".
        whiskers: the figure shows the spread of repetitions, if there is one.
    """
    lines = list(pivot.lines.values())
    valid = [line for line in lines if line["status"] == "ok"]
    lost = len(lines) - len(valid)
    lost_reps = sum(int(line["repeats_lost"]) for line in valid)
    parts = [
        progress,
        _testbed(lines),
        f"{_each(lines, 'workers')} workers",
        _workload(pivot, lines),
        _network(pivot, lines),
        *(f"{text}{_channels(lines)}" for text in _all_reduce(lines)),
        f"TCP {_each(lines, 'tcp')}",
        _repeats(valid, whiskers),
        _hosts(valid),
        f"{lost} cell{'s' if lost > 1 else ''} failed or invalid" if lost else None,
        f"left out: {lost_reps} failed or invalid repetition{'s' if lost_reps > 1 else ''}" if lost_reps else None,
        marks,
        f"{_DASHED[pivot.column_axis == 'rtt_ms']}: {pivot.beside.mark}" if pivot.beside else None,
        pivot.note,
    ]
    return f"{run_name}: " + "; ".join(part for part in parts if part) + "."


def wrapped(text: str, width_in: float, font_pt: float, *, bold: bool = False) -> list[str]:
    """`text` in lines that fit a figure of that width, by the average width of DejaVu Sans with a reserve."""
    char_in = (0.64 if bold else 0.545) * font_pt / 72
    return textwrap.wrap(_UNIT.sub("\\1\u00a0\\2", text), int((width_in - 0.16) / char_in))


def _workload(pivot: Pivot, lines: Sequence[Line]) -> str:
    text = _each(lines, "workload")
    if any(line["payload_scale"] != 1 for line in lines):
        text += f" with messages and rates × {_each(lines, 'payload_scale')}"
    size = message_size(pivot)
    return (f"{text} ({size} per message)" if size else text) + _unequal(lines)


def _unequal(lines: Sequence[Line]) -> str:
    """The step times of workers that differ; "" if none do."""
    times_s = [time_s for line in lines if (inputs := law_inputs(line)) for time_s in inputs.step_times_s]
    return f" on workers of {1e3 * min(times_s):g} to {1e3 * max(times_s):g} ms a step" if times_s else ""


def _network(pivot: Pivot, lines: Sequence[Line]) -> str:
    text = f"profile {_each(lines, 'profile')}"
    if all(line["profile"] == "uniform" and not absent(line["rate_mbps"]) for line in lines):
        text += f" at {_each(lines, 'rate_mbps', lambda mbps: rate_text(float(str(mbps))))} per worker"
        if pivot.column_axis != "rtt_ms":
            text += f", RTT {_each(lines, 'rtt_ms')} ms"
    elif pivot.column_axis != "rtt_ms" and any(not absent(line["rtt_ms"]) for line in lines):
        text += f", median RTT {_each(lines, 'rtt_ms', _ms)} ms, longest {_each(lines, 'rtt_max_ms', _ms)} ms"
    if any(line["jitter_ms"] > 0 for line in lines):
        text += f", jitter {_each(lines, 'jitter_ms')} ms"
    if any(line["loss_pct"] > 0 for line in lines):
        text += f", loss {_each(lines, 'loss_pct', _percent)} %{_bursts(lines)}"
    return text


def _bursts(lines: Sequence[Line]) -> str:
    bursty = [line for line in lines if line["loss_burst"] > 0]
    if not bursty:
        return ""
    alone = "" if len(bursty) == len(lines) else "alone and "
    return f" {alone}in bursts of {_each(bursty, 'loss_burst')} packets"


def _testbed(lines: Sequence[Line]) -> str:
    if all(line["testbed"] == "virtual" for line in lines):
        return "simulated network and clock"
    emulators = _each([line for line in lines if line["emulator"]], "emulator")
    return f"network emulated by {emulators} (testbed {_each(lines, 'testbed')})"


def _all_reduce(lines: Sequence[Line]) -> list[str]:
    """Empty for a user's own program, which chooses its collective."""
    collective = _each(lines, "collective")
    return [f"{collective} all-reduce"] if collective else []


def has_law(pivot: Pivot) -> bool:
    """True if the step-time law predicts any cell."""
    return not all(absent(line["predicted_step_time_s"]) for line in pivot.lines.values())


def _channels(lines: Sequence[Line]) -> str:
    gloo = [line for line in lines if line["collective"] == "gloo"]
    counts = sorted({int(line["channels"]) for line in gloo if not absent(line["channels"])})
    if not counts:
        return ""
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f", {span} channel{'s' if counts[-1] > 1 else ''}"


def _repeats(valid: Sequence[Line], whiskers: bool) -> str | None:
    counts = sorted({int(line["repeats"]) for line in valid})
    if not counts:
        return None
    if counts[-1] == 1:
        return "one repetition"
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"median of {span} repetitions" + (", whiskers: minimum and maximum" if whiskers else "")


def _hosts(valid: Sequence[Line]) -> str | None:
    """The hosts whose repetitions were pooled, and how much they differ; None if none were."""
    pooled = [line for line in valid if len(line["on_hosts"]) > 1]
    if not pooled:
        return None
    ratios = [line["calibration_s_max"] / line["calibration_s_min"] for line in pooled if line["calibration_s"] > 0]
    differ = f" that differ by {100 * (max(ratios) - 1):.1f} % in the step time of one worker" if ratios else ""
    return f"on {len({host for line in valid for host in line['on_hosts']})} hosts{differ}"


def _ms(value: object) -> str:
    return f"{float(str(value)):.4g}"


def _percent(value: object) -> str:
    return f"{value:g}" if (isinstance(value, float) and value >= 1e-3) or not value else "below 0.001"


def _each(lines: Sequence[Line], key: str, show: Callable[[object], str] = shown) -> str:
    """The distinct values of a column in words: "4", "4 and 8", "5 to 9"."""
    values = sorted({line[key] for line in lines if not absent(line[key])})
    if len(values) > 3 and not isinstance(values[0], str):
        return f"{show(values[0])} to {show(values[-1])}"
    return " and ".join(show(value) for value in values)
