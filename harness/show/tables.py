"""Results as text: an aligned table of cells, a pivot of results beside the law, Markdown, CSV, JSON and Parquet.

`table`, `pivot` and `md` show one entry per cell, the median of its repetitions. `csv`, `json` and `parquet` have one
object per repetition with every column, for machines.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from wanbench.harness.analysis.axes import AXES, AXIS_TITLES, absent, axes_of
from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import (
    AnalysisError,
    Pivot,
    Row,
    cells,
    compared_by_steps,
    frame,
    pivots,
    provenance,
    speed_ups,
)
from wanbench.harness.grouping import by_key
from wanbench.harness.results.columns import SHOWN
from wanbench.harness.results.disk import write_bytes
from wanbench.harness.results.scalability import formula
from wanbench.harness.show.grid import aligned, as_written, fitted, left_out, markdown, width_of_output
from wanbench.harness.text import milliseconds, shown
from wanbench.netprofiles.errors import did_you_mean

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Show = Callable[[Row], str]  # an entry of the table
TextFormat = Literal["table", "pivot", "md", "csv", "json"]

# Entries of the pivot for cells that have no number.
_ABSENT = "."


def render(rows: Sequence[Row], form: TextFormat, sort: str | None = None) -> str:
    """`rows` in one of the text formats, ending in a newline.

    Args:
        rows: one per repetition. form: the format. sort: the column to sort a table by.

    Raises:
        AnalysisError: `pivot` or `md` of rows without a cell with more than one worker; an unknown column.
    """
    if form == "table":
        return as_table(rows, sort)
    if sort is not None:
        raise AnalysisError(f"--sort: cannot sort --format {form}; use --format table")
    if form == "csv":
        return objects_as_csv(rows, SHOWN)
    return {"pivot": as_pivot, "md": as_markdown, "json": as_json}[form](rows)


def _number(value: float, scale: float, digits: int) -> str:
    return "" if absent(value) else f"{value * scale:z.{digits}f}"


def _median(name: str, scale: float, digits: int) -> Show:
    return lambda line: _number(line[name], scale, digits)


def _range(name: str, scale: float, digits: int) -> Show:
    """The range of several repetitions."""

    def show(line: Row) -> str:
        if line["repeats"] < 2 or absent(line[name]):
            return ""
        return "..".join(_number(line[f"{name}_{end}"], scale, digits) for end in ("min", "max"))

    return show


_SPREAD = "min..max"
# Columns of the table besides the axes: the title, the column that some repetition must have, and the entry.
_COLUMNS: tuple[tuple[str, str, Show], ...] = (
    ("reps", "rep", lambda line: str(line["repeats"])),
    ("step ms", "rep", _median("step_time_s", 1e3, 1)),
    (_SPREAD, "rep", _range("step_time_s", 1e3, 1)),
    ("compute ms", "rep", _median("compute_s", 1e3, 1)),
    ("stall ms", "rep", _median("stall_s", 1e3, 1)),
    ("overhead ms", "rep", _median("overhead_s", 1e3, 1)),
    ("scalability", "rep", _median("scalability", 1, 3)),
    (_SPREAD, "rep", _range("scalability", 1, 3)),
    ("law", "rep", _median("predicted_scalability", 1, 3)),
    ("deviation", "rep", lambda line: "" if absent(line["deviation_pct"]) else f"{line['deviation_pct']:+z.1f} %"),
    ("accuracy %", "accuracy", _median("accuracy", 100, 2)),
    (_SPREAD, "accuracy", _range("accuracy", 100, 2)),
    ("points from ssgd (95 %)", "accuracy", lambda line: str(line["change"])),
    ("to target s", "time_to_target_s", _median("time_to_target_s", 1, 2)),
    ("blocks lost %", "blocks_lost_pct", _median("blocks_lost_pct", 1, 2)),
    ("replica spread", "blocks_lost_pct", _median("replica_spread", 1, 5)),
    ("fastest worker ms", "fastest_step_time_s", _median("fastest_step_time_s", 1e3, 1)),
)
# Those that can be left out, the least important first.
_DROP = ("overhead ms", "compute ms", "deviation", _SPREAD, "replica spread", "law", "stall ms")


def as_table(rows: Sequence[Row], sort: str | None = None, width: int | None = None) -> str:
    """One aligned line per cell: its axes, step time and its parts in ms, and scalability beside the law.

    Entries are medians over the repetitions; `min..max` is their range.

    Args:
        rows: one per repetition. sort: a column of the results; "-" before it sorts the largest first.
        width: in characters; None: that of the terminal. Columns that do not fit are left out and named.

    Raises:
        AnalysisError: there is no such column.
    """
    if not rows:
        return aligned(["algorithm", *(title for title, needed, _ in _COLUMNS if needed == "rep")], [])
    table, kind = frame(rows), provenance(row["testbed"] for row in rows)
    mixed = {"testbed"} if " and " in kind else set()
    mixed |= {"hosts"} if table["hosts"].nunique() > 1 else set()
    axes = [axis for axis in AXES if axis in {"workers", *axes_of(table), *mixed}]
    columns = [(title, show) for title, needed, show in _COLUMNS if table[needed].notna().any()]
    first = "setting" if any(table["choices"]) else "algorithm"
    header = [first, *(AXIS_TITLES.get(axis, axis) for axis in axes), *(title for title, _ in columns)]
    cases = networks(rows) if table["accuracy"].notna().any() else []  # for accuracies minus that of ssgd
    changes = {(s.cell, s.host): s.change_text for network in cases for s in network.standings}
    lines = []
    for line in _sorted(cells(table), sort):
        line["change"] = changes.get((line["cell"], line["hosts"]), "")
        entries = [show(line) for _, show in columns]
        if line["status"] != "ok":
            entries = ["0", ": ".join(filter(None, [line["status"], line["reason"]]))]
        lines.append([str(line["algorithm"]), *(shown(line[axis]) for axis in axes), *entries])
    text, dropped = fitted(header, lines, _DROP, width or width_of_output())
    note = left_out(list(dict.fromkeys(dropped)), "`--format csv` has all columns.")
    return "\n".join([text, " ".join(filter(None, [f"The results are {kind}.", note]))])


def _sorted(lines: list[dict[str, Any]], sort: str | None) -> list[dict[str, Any]]:
    """Failed cells and cells without a value come last."""
    if sort is None or not lines:
        return lines
    name, down = sort.removeprefix("-"), sort.startswith("-")
    if name not in lines[0]:
        near = did_you_mean(name, lines[0], f"columns: {', '.join(SHOWN)}")
        raise AnalysisError(f"--sort {sort}: no column {name!r}{near}")
    valued = [line for line in lines if line["status"] == "ok" and not absent(line[name])]
    rest = [line for line in lines if line["status"] != "ok" or absent(line[name])]
    numbers = all(isinstance(line[name], int | float) for line in valued)
    valued.sort(key=lambda line: line[name] if numbers else str(line[name]), reverse=down)
    return valued + rest


def as_pivot(rows: Sequence[Row]) -> str:
    """Scalability of every algorithm along the main axis, with the prediction of the law in parentheses.

    Where scalability says little, step times with their speed-up over the slowest stand in its place.
    """
    grids, legend = _pivot_grids(rows)
    return f"{legend}\n\n" + "\n".join(f"{heading}\n{aligned(*grid)}" for heading, grid in grids)


def as_markdown(rows: Sequence[Row]) -> str:
    """The pivot as GitHub-flavoured Markdown tables."""
    grids, legend = _pivot_grids(rows)
    blocks = [f"**{as_written(heading)}**\n\n{markdown(*grid, numbers=True)}" for heading, grid in grids]
    return "\n".join([*blocks, f"{legend}\n"])


_Grid = tuple[list[str], list[list[str]]]  # a header, and lines


def _pivot_grids(rows: Sequence[Row]) -> tuple[list[tuple[str, _Grid]], str]:
    """Each pivot with its heading, and the legend of all."""
    tables = pivots(frame(rows))
    times = compared_by_steps(line for pivot in tables for line in pivot.lines.values())
    return [(_pivot_heading(pivot), _pivot_grid(pivot, times)) for pivot in tables], _legend(rows, times)


def _legend(rows: Sequence[Row], times: bool) -> str:
    kind = provenance(row["testbed"] for row in rows)
    definition = formula(rows).replace(" / ", "/")
    losses = "In brackets: goodput, the share that is left of the same cell without failures.\n"
    meaning = (
        f"Scalability {definition}, {kind}, and in parentheses as predicted by the step-time law; 1 is the limit.\n"
    )
    if times:
        meaning = f"Step time in ms, {kind}, and in parentheses the speed-up over the slowest in its column.\n"
    return (
        f"{meaning}{losses if any(row.get('goodput') is not None for row in rows) else ''}"
        f"`failed`, `invalid`: no valid repetition. `{_ABSENT}`: not run."
    )


def _pivot_heading(pivot: Pivot) -> str:
    fixed = ", ".join(f"{AXIS_TITLES.get(axis, axis)} {shown(value)}" for axis, value in pivot.fixed.items())
    by = f"{_series(pivot)} by {AXIS_TITLES.get(pivot.column_axis, pivot.column_axis)}"
    return f"{by}; {fixed}" if fixed else by


def _series(pivot: Pivot) -> str:
    return "setting" if any(line["choices"] for line in pivot.lines.values()) else "algorithm"


def _pivot_grid(pivot: Pivot, times: bool) -> _Grid:
    header = [_series(pivot), *(shown(column) for column in pivot.columns)]
    ratios = speed_ups(pivot) if times else None
    keys = [[(label, column) for column in pivot.columns] for label in pivot.algorithms]
    lines = [[row[0][0], *(_pivot_entry(pivot.lines.get(key), ratios, key) for key in row)] for row in keys]
    return header, lines


def _pivot_entry(line: Row | None, ratios: Mapping[tuple[str, Any], float] | None, key: tuple[str, Any]) -> str:
    """The entry of a cell: scalability, or, with `ratios`, the step time and the speed-up."""
    if line is None or line["status"] != "ok":
        return _ABSENT if line is None else str(line["status"])
    if ratios is not None:
        text = milliseconds(line["step_time_s"]) + (f" ({ratios[key]:.2f}×)" if key in ratios else "")
    else:
        law = line["predicted_scalability"]
        text = "?" if math.isnan(line["scalability"]) else f"{line['scalability']:.2f}"
        text += "" if math.isnan(law) else f" ({law:.2f})"
    return text if math.isnan(line["goodput"]) else f"{text} [{line['goodput']:.2f}]"


def objects_as_csv(objects: Sequence[Row], first: Sequence[str] = ()) -> str:
    """A line per object, with structured values as JSON. The columns `first` come first, even if all are empty."""
    columns = _columns(objects, first)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_inert, columns))
    for row in objects:
        writer.writerow(["" if absent(row.get(name)) else _inert(_flat(row[name])) for name in columns])
    return out.getvalue()


def _inert(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula begins with an apostrophe. Numbers stay as they are."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def as_json(rows: Sequence[Row]) -> str:
    """An array with one object per repetition. Values that do not apply and numbers that are not finite are null."""
    columns = _columns(rows)
    objects = [{name: in_json(row.get(name)) for name in columns} for row in rows]
    return json.dumps(objects, indent=1, allow_nan=False) + "\n"


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write one row per repetition, by one atomic rename. Structured values become JSON strings."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = _columns(rows)
    data = {name: [None if absent(row.get(name)) else _flat(row[name]) for row in rows] for name in columns}
    table = pa.table({name: _column(values) for name, values in data.items()})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"wanbench.schema": "1"}), buffer)
    write_bytes(path, buffer.getvalue())


def _column(values: list[Any]) -> Any:
    """Integers mixed with floats become floats. Other mixed types become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and kinds != {int, float}:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)


def _columns(rows: Iterable[Row], first: Sequence[str] = SHOWN) -> list[str]:
    return list(dict.fromkeys([*first, *(name for row in rows for name in row)]))


def _flat(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list | tuple) else value


def in_json(value: Any) -> Any:
    """`value`, or None if it is not finite: the loss of diverged training is infinite, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_TIMELINE_HEADER = ("change", "due (s)", "actual (s)", "max delay (ms)", "repetitions")
_MOST_MOMENTS = 12


def timeline_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of changes per timeline, over all valid repetitions; "" if no network changes."""
    changing = by_key((row["timeline"], row) for row in rows if row.get("timeline") and row["status"] == "ok")
    return "\n".join(f"timeline: {text}\n{_moments(of_timeline)}" for text, of_timeline in changing.items())


def _moments(rows: Iterable[Mapping[str, Any]]) -> str:
    """Changes of different repetitions are matched by their position."""
    listed = (change for row in rows for change in enumerate(row.get("events") or []))
    events = by_key(((position, event["what"]), event) for position, event in listed)
    lines = []
    for (_, what), alike in sorted(events.items())[:_MOST_MOMENTS]:
        happened = [event for event in alike if event["actual_s"] is not None]
        late_ms = max((1e3 * (event["actual_s"] - event["asked_s"]) for event in happened), default=None)
        lines.append(
            [
                what,
                _span([event["asked_s"] for event in alike]),
                _span([event["actual_s"] for event in happened]) if happened else "never",
                "" if late_ms is None else f"{late_ms:z.1f}",
                f"{len(happened)} of {len(alike)}",
            ]
        )
    more = f"and {len(events) - _MOST_MOMENTS} more\n" if len(events) > _MOST_MOMENTS else ""
    return aligned(_TIMELINE_HEADER, lines) + more


def _span(seconds: list[float]) -> str:
    low, high = (f"{value:z.3f}" for value in (min(seconds), max(seconds)))
    return low if low == high else f"{low}..{high}"
