"""The words around a figure: a title with what it shows, computed from the values that it draws, its subject, and a
caption with the conditions, so that it can stand alone."""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from wanbench.harness.analysis.axes import absent, axis_value
from wanbench.harness.analysis.best import REFERENCE, TIE_SHARE, megabytes_per_step
from wanbench.harness.analysis.summary import Line, Pivot, law_inputs, speed_ups
from wanbench.harness.grouping import by_key
from wanbench.harness.show.figures.names import line_name
from wanbench.harness.text import percent, rate, shown
from wanbench.workloads.algorithms.registry import BUILT_IN

_FAR_MS = 500.0  # about the longest round trip on the Internet
# Another run is drawn so, by whether it is drawn as curves and whether it is simulated.
_BESIDE = {
    (True, True): "dashed, without markers",
    (True, False): "thin, with points",
    (False, True): "dashed outlines",
    (False, False): "outlines",
}
_UNIT = re.compile(r"(\d) (%|ms|s|kB|MB|GB|Mbit/s|Gbit/s)(?!\w)")  # a number and its unit stay in one line


def subject(pivot: Pivot) -> str:
    """What was synchronised, and how: "resnet50-v100, direct all-reduce, 8 workers".

    The cost of a byte depends on the message size with gloo. Its scaled runs are therefore named by the size that was
    sent, not by a workload of another size.
    """
    lines = list(pivot.lines.values())
    size = message_size(pivot)
    scaled_gloo = any(line["collective"] == "gloo" and line["payload_scale"] < 1 for line in lines)
    workload = f"{size} messages" if scaled_gloo and size else _distinct(lines, "workload")
    fixed = {k: v for k, v in pivot.fixed.items() if k not in {"collective", "workload"}}
    return ", ".join([workload, *_all_reduce(lines), *(axis_value(axis, value) for axis, value in fixed.items())])


def titled(pivot: Pivot, finding: str | None) -> str:
    """The two lines of a title: the finding; the subject and its network."""
    return f"{finding or 'Scalability'}\n{on_network(pivot)}"


def on_network(pivot: Pivot) -> str:
    """The subject, and whether its network is emulated or simulated."""
    return f"{pivot.heading or subject(pivot)}; {pivot.network} network"


def speed(pivot: Pivot) -> str | None:
    """ "At 500 ms, SSGD keeps 36 % of its speed; DTS 99 %"; None if no scalability is known."""
    pair = _pair(pivot)
    if pair is None:
        return None
    column, slow, fast = pair
    names = [_name(pivot, column, line) for line in (slow, fast)]
    verb = " keeps" if names[1].endswith("%") else ""
    where = _agreement(pivot) or f"{_where(pivot, column)},"
    text = f"{where} {names[0]} keeps {percent(slow['scalability'])} of its speed"
    return text if slow is fast else f"{text}; {names[1]}{verb} {percent(fast['scalability'])}{unclear(slow, fast)}"


def waiting(pivot: Pivot) -> str | None:
    """ "At 500 ms, SSGD waits 64 % of its time; DTS 0 %"; of a user's program, the step times."""
    pair = _pair(pivot)
    if pair is None:
        return None
    column, slow, fast = pair
    names = [_name(pivot, column, line) for line in (slow, fast)]
    if any(math.isnan(line["stall_s"]) for line in (slow, fast)):
        first, second = (f"{line['step_time_s']:.3g} s" for line in (slow, fast))
        text = f"a step of {names[0]} takes {first}"
        return f"{_where(pivot, column)}, {text}" + ("" if slow is fast else f"; of {names[1]} {second}")
    shares = [percent(line["stall_s"] / line["step_time_s"]) for line in (slow, fast)]
    text = f"{_where(pivot, column)}, {names[0]} waits {shares[0]} of its time"
    text = text if slow is fast else f"{text}; {names[1]} {shares[1]}{unclear(slow, fast)}"
    return text if absent(slow.get("fastest_step_time_s")) else f"{text} (slowest worker)"


def unclear(first: Line, second: Line, measure: str = "scalability") -> str:
    """What a title adds to the values of two cells whose repetitions overlap, so that neither is said to be better."""
    ends = [(cell[f"{measure}_min"], cell[f"{measure}_max"]) for cell in (first, second)]
    return ": no clear difference" if max(low for low, _ in ends) <= min(high for _, high in ends) else ""


def _agreement(pivot: Pivot) -> str | None:
    """ "Containers and processes agree within 0.5 %:", if every algorithm is as fast on all testbeds."""
    if pivot.column_axis != "testbed" or len(pivot.columns) == 1:
        return None
    by_label = by_key((label, float(line["scalability"])) for (label, _), line in pivot.lines.items())
    share = max(max(values) / min(values) - 1 for values in by_label.values())
    names = " and ".join(axis_value("testbed", testbed).partition(" (")[0] for testbed in pivot.columns)
    return f"{names.capitalize()} agree within {math.ceil(1000 * share) / 10:g} %:" if share <= TIE_SHARE else None


def has_choices(pivot: Pivot) -> bool:
    """True if the pivot compares choices besides the algorithm."""
    return any(line["choices"] for line in pivot.lines.values())


def chosen(pivot: Pivot) -> str | None:
    """ "At 100 ms, gloo, bucket 25 is 2.7 times as fast as gloo, bucket 1"; None without choices or a difference."""
    ratios = speed_ups(pivot) if has_choices(pivot) else {}
    label, column = max(ratios, key=lambda key: ratios[key], default=("", None))
    ratio = ratios.get((label, column), 1.0)
    if ratio <= 1 + TIE_SHARE:
        return None
    slowest = next(other for (other, at), value in ratios.items() if at == column and value == 1)
    where = f"{_where(pivot, column)}, " if len(pivot.columns) > 1 else ""
    return f"{where}{label} is {ratio:{'.2g' if ratio < 10 else '.0f'}} times as fast as {slowest}"


def column_of(pivot: Pivot) -> Any:
    """The column that the finding is about; None if there is none."""
    pair = _pair(pivot)
    return None if pair is None else pair[0]


def _pair(pivot: Pivot) -> tuple[Any, Line, Line] | None:
    """A column, its reference (ssgd, else the slowest), and its fastest algorithm; equally fast ones by bytes sent."""
    columns: dict[Any, tuple[Line, Line]] = {}
    for column in pivot.columns:
        lines = [pivot.lines[label, column] for label in pivot.algorithms if (label, column) in pivot.lines]
        valid = [line for line in lines if line["status"] == "ok" and line["scalability"] > 0]
        if not valid:
            continue
        slow = min(valid, key=lambda line: (line["kind"] != REFERENCE, line["scalability"]))
        top = max(line["scalability"] for line in valid) * (1 - TIE_SHARE)
        fast = min((line for line in valid if line["scalability"] >= top), key=_sent)
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
    family = [other for (_, at), other in pivot.lines.items() if at == column and other["kind"] == line["kind"]]
    name = BUILT_IN[line["kind"]].name if line["kind"] in BUILT_IN else ""
    return name if name and len({percent(other["scalability"]) for other in family}) == 1 else line_name(line)


def _where(pivot: Pivot, column: Any) -> str:
    """ "At 500 ms", "On 16 workers", "On world4"."""
    if pivot.column_axis == "rtt_ms":
        return f"At {column:g} ms"
    on = pivot.column_axis in {"workers", "profile", "workload", "collective", "tcp", "host_tcp", "testbed", "emulator"}
    return f"{'On' if on else 'At'} {axis_value(pivot.column_axis, column)}"


def names_of(pivot: Pivot) -> dict[str, str]:
    """Label -> the name that is drawn."""
    return {label: line_name(line) for (label, _), line in pivot.lines.items()}


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


def caption(pivot: Pivot, run_name: str, marks: str | None, *, whiskers: bool = True, middle: str = "median") -> str:
    """Testbed, workload, scale, network, collective, repetitions.

    Args:
        pivot: what is drawn. run_name: the first word. marks: explains what is drawn, if it needs words.
        whiskers: it shows the spread of repetitions, if there is one. middle: what it shows of them; "" if single ones.
    """
    lines = list(pivot.lines.values())
    valid = [line for line in lines if line["status"] == "ok"]
    lost, run = len(lines) - len(valid), pivot.beside
    lost_reps = sum(int(line["repeats_lost"]) for line in valid)
    parts = [
        _testbed(lines),
        f"{_distinct(lines, 'workers')} workers",
        _workload(pivot, lines),
        _network(pivot, lines),
        *(f"{text}{_channels(lines)}" for text in _all_reduce(lines)),
        f"TCP {_distinct(lines, 'tcp')} on {_distinct(lines, 'host_tcp')} hosts",
        _repeats(valid, whiskers, middle) if middle else None,
        _hosts(valid),
        f"{lost} cell{'s' if lost > 1 else ''} failed or invalid" if lost else None,
        f"left out: {lost_reps} failed or invalid repetition{'s' if lost_reps > 1 else ''}" if lost_reps else None,
        marks,
        f"{_BESIDE[pivot.column_axis == 'rtt_ms', run.network == 'simulated']}: {run.mark}" if run else None,
        pivot.note,
    ]
    return f"{run_name}: " + "; ".join(part for part in parts if part) + "."


def wrapped(text: str, width_in: float, font_pt: float, *, bold: bool = False) -> list[str]:
    """`text` in lines that fit a figure of that width, by the average width of DejaVu Sans with a reserve."""
    char_in = (0.64 if bold else 0.545) * font_pt / 72
    return textwrap.wrap(_UNIT.sub("\\1\u00a0\\2", text), int((width_in - 0.16) / char_in))


def _workload(pivot: Pivot, lines: Sequence[Line]) -> str:
    text = _distinct(lines, "workload")
    if any(line["payload_scale"] != 1 for line in lines):
        text += f" with messages and rates × {_distinct(lines, 'payload_scale')}"
    if size := message_size(pivot):
        text += f" (up to {size} per message)"
    times_s = [time_s for line in lines if (inputs := law_inputs(line)) for time_s in inputs.step_times_s]
    if times_s:  # of workers that differ
        text += f" on workers of {1e3 * min(times_s):g} to {1e3 * max(times_s):g} ms a step"
    return text


def _network(pivot: Pivot, lines: Sequence[Line]) -> str:
    text = f"profile {_distinct(lines, 'profile')}"
    if all(line["profile"] == "uniform" and not absent(line["rate_mbps"]) for line in lines):
        text += f" at {_distinct(lines, 'rate_mbps', lambda mbps: rate(float(str(mbps))))} per worker"
        if pivot.column_axis != "rtt_ms":
            text += f", RTT {_distinct(lines, 'rtt_ms')} ms"
    elif pivot.column_axis != "rtt_ms" and any(not absent(line["rtt_ms"]) for line in lines):
        text += f", median RTT {_distinct(lines, 'rtt_ms', _ms)} ms, longest {_distinct(lines, 'rtt_max_ms', _ms)} ms"
    if any(line["jitter_ms"] > 0 for line in lines):
        text += f", jitter {_distinct(lines, 'jitter_ms')} ms"
    if any(line["loss_pct"] > 0 for line in lines):
        text += f", loss {_distinct(lines, 'loss_pct', _percent)} %{_bursts(lines)}"
    return text


def _bursts(lines: Sequence[Line]) -> str:
    bursty = [line for line in lines if line["loss_burst"] > 0]
    if not bursty:
        return ""
    alone = "" if len(bursty) == len(lines) else "alone and "
    return f" {alone}in bursts of {_distinct(bursty, 'loss_burst')} packets"


def _testbed(lines: Sequence[Line]) -> str:
    if all(line["testbed"] == "virtual" for line in lines):
        return "simulated network and clock"
    emulators = _distinct([line for line in lines if line["emulator"]], "emulator")
    return f"network emulated by {emulators} (testbed {_distinct(lines, 'testbed')})"


def _all_reduce(lines: Sequence[Line]) -> list[str]:
    """Empty for a user's own program, which chooses its collective."""
    collective = _distinct(lines, "collective")
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


def _repeats(valid: Sequence[Line], whiskers: bool, middle: str) -> str | None:
    counts = sorted({int(line["repeats"]) for line in valid})
    if not counts:
        return None
    if counts[-1] == 1:
        return "one repetition"
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{middle} of {span} repetitions" + (", whiskers: minimum and maximum" if whiskers else "")


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


def _distinct(lines: Sequence[Line], key: str, show: Callable[[object], str] = shown) -> str:
    """The distinct values of a column in words: "4", "4 and 8", "5 to 9"."""
    values = sorted({line[key] for line in lines if not absent(line[key])})
    if len(values) > 3 and not isinstance(values[0], str):
        return f"{show(values[0])} to {show(values[-1])}"
    return " and ".join(show(value) for value in values)
