"""What a figure says about itself: title and caption, complete enough to stand alone in a paper or a pull request."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.figure import Figure

from harness.analysis import AXIS_TITLES, Pivot, law_inputs
from harness.figures.style import FAINT

_FONT_PT = 6.0
_CHAR_IN = 0.53 * _FONT_PT / 72


def title(pivot: Pivot) -> str:
    """What was synchronised, and how.

    gloo's cost per byte depends on the message's size, so its scaled runs are named by the size that
    travelled and not by the workload whose size it is not.
    """
    line = next(iter(pivot.lines.values()))
    size = message_size(pivot)
    scaled = line["payload_scale"] < 1
    subject = (
        f"{size} messages" if line["collective"] == "gloo" and scaled and size else str(line["workload"])
    )
    parts = [subject, f"{line['collective']} all-reduce"]
    parts += [
        axis_value(axis, value)
        for axis, value in pivot.fixed.items()
        if axis not in {"collective", "workload"}
    ]
    return ", ".join(parts)


def message_size(pivot: Pivot) -> str | None:
    """The true size of one message, scale applied, as "1.0 MB"; None if no row recorded it.

    The smallest of the run: dts with momentum sends two such vectors in one message.
    """
    sizes = [inputs.message_bytes for line in pivot.lines.values() if (inputs := law_inputs(line))]
    least = min((size for size in sizes if size > 0), default=None)
    if least is None:
        return None
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if least >= scale:
            return f"{least / scale:.1f} {unit}"
    return f"{least} B"


def caption(pivot: Pivot, run_name: str, marks: str, cells_total: int | None = None) -> str:
    """Workload, scale, network, testbed, collective, repeats; `marks` explains what is drawn.

    With `cells_total` above the number of finished cells it begins with "k of n cells", for a run that is
    going on.
    """
    lines = [line for line in pivot.lines.values() if line["status"] == "ok"] or list(pivot.lines.values())
    first = lines[0]
    size = message_size(pivot)
    workload = str(first["workload"])
    if first["payload_scale"] != 1:
        workload += f" with messages and rates x {first['payload_scale']:g}"
    if size:
        workload += f" ({size} a message)"
    parts = [
        workload,
        _either(f"{line['workers']} workers" for line in lines),
        _network(first, "rtt_ms" in pivot.fixed),
        _testbed(first),
        f"all-reduce: {first['collective']}{_channels(lines)}",
        f"TCP {first['tcp']}" if first["tcp"] else "",
        _repeats(lines),
        marks,
    ]
    done = sum(line["status"] == "ok" for line in pivot.lines.values())
    if cells_total is not None and done < cells_total:
        parts.insert(0, f"{done} of {cells_total} cells")
    return f"{run_name}: " + "; ".join(part for part in parts if part) + "."


def _network(line: Mapping[str, Any], with_rtt: bool) -> str:
    text = f"profile {line['profile']}"
    if not _absent(line["rate_mbps"]) and line["profile"] == "uniform":
        text += f", {_rate(line['rate_mbps'])} per worker"
    if with_rtt and not _absent(line["rtt_ms"]):
        text += f", RTT {line['rtt_ms']:g} ms"
    if line["jitter_ms"]:
        text += f", jitter {line['jitter_ms']:g} ms"
    if line["loss_pct"]:
        text += f", loss {line['loss_pct']:g} %"
    return text


def _testbed(line: Mapping[str, Any]) -> str:
    if line["testbed"] == "virtual":
        return "testbed virtual: emulated network on a simulated clock"
    return f"testbed {line['testbed']}: network emulated by {line['emulator']}"


def _channels(lines: Iterable[Mapping[str, Any]]) -> str:
    lines = list(lines)
    if lines[0]["collective"] != "gloo":
        return ""
    return f", {_either(str(line['channels']) for line in lines)} channels"


def _repeats(lines: Iterable[Mapping[str, Any]]) -> str:
    counts = sorted({int(line["repeats"]) for line in lines})
    if counts[-1] <= 1:
        return "one repeat"
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"median of {span} repeats, bars from least to most"


def _rate(mbps: float) -> str:
    return f"{mbps / 1e3:g} Gbit/s" if mbps >= 1e3 else f"{mbps:g} Mbit/s"


def _either(values: Iterable[str]) -> str:
    """ "4 workers" or "4 or 8 workers": the distinct values, in order."""
    distinct = list(dict.fromkeys(values))
    heads = [value.split(" ", 1) for value in distinct]
    tail = f" {heads[0][1]}" if len(heads[0]) > 1 else ""
    return " or ".join(head[0] for head in heads) + tail


def axis_value(axis: str, value: object) -> str:
    """One value of an axis with its name and unit: "RTT 100 ms", "8 workers", "world4"."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    if axis in {"profile", "tcp", "collective", "workload"}:
        return shown
    if axis == "workers":
        return f"{shown} workers"
    name, _, unit = AXIS_TITLES.get(axis, axis).partition(" (")
    return f"{name} {shown} {unit.removesuffix(')')}".rstrip()


def _absent(value: object) -> bool:
    return value is None or value != value


def caption_lines(text: str, width_in: float) -> list[str]:
    """`text` wrapped to a figure of that width."""
    return textwrap.wrap(text, int((width_in - 0.16) / _CHAR_IN))


def put_caption(figure: Figure, text: str) -> None:
    """Write `text` at the bottom of `figure`, wrapped to its width."""
    width_in, height_in = figure.get_size_inches()
    figure.text(
        0.08 / width_in,
        0.06 / height_in,
        "\n".join(caption_lines(text, width_in)),
        fontsize=_FONT_PT,
        color=FAINT,
        va="bottom",
        parse_math=False,
    )
