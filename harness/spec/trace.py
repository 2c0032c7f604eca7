"""A recorded trace of a path: the lines of a CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.netprofiles.impairments.delay import ONE_WAY, RTT
from wanbench.netprofiles.impairments.queue import RATE
from wanbench.netprofiles.path import EFFECTS
from wanbench.netprofiles.units import Delay, Packets, Quantity, Rate, Ratio
from wanbench.netprofiles.user_file import number, read_table, read_text

TIME = "time_s"
TRACED = {each.column: each for each in (RTT, ONE_WAY, *EFFECTS, RATE)}
VALUES = tuple(TRACED)
COUNTS = {column for column, each in TRACED.items() if each.unit is Packets}  # of packets in a row; 0 is none
MOST_LINES = 2000
LONGEST_S, LEAST_MBPS, MOST_MBPS = 10**6, 1e-6, 10**6  # limits of all times, delays and rates; nanoseconds fit 64 bits
MOST_PACKETS = 10**6

Point = dict[str, float]


def read_trace(path: Path, where: str) -> list[Point]:
    """Read the lines of a trace: `time_s`, and the values from then on.

    Columns: `time_s`, which grows from line to line, and at least one of `VALUES`. An empty field keeps the value of
    the line before; in the first line, it keeps the value of the path without the trace.

    Raises:
        SpecError: no such file, or a wrong line; `where` names the key in the spec.
    """
    points: list[Point] = []
    try:
        rows = read_table(read_text(path, "CSV"))
        _, names = next(rows, (1, []))
        _check_columns(names)
        for line, cells in rows:
            if len(points) == MOST_LINES:
                raise ValueError(f"expected 1 to {MOST_LINES} lines of values, got more")
            try:
                points.append({**(points[-1] if points else {}), **_point(zip(names, cells, strict=True))})
            except ValueError as error:
                raise ValueError(f"line {line}: {error}") from None
        check_points(points)
    except ValueError as error:  # FileError is a ValueError
        raise SpecError(f"{where}: {path}: {error}") from None
    return points


def check_points(points: Sequence[Mapping[str, float]]) -> None:
    """Check the lines of a trace. Raises: ValueError."""
    if not 1 <= len(points) <= MOST_LINES:
        raise ValueError(f"expected 1 to {MOST_LINES} lines of values, got {len(points)}")
    for point in points:
        _check_columns(point)
        for name, value in point.items():
            low, high = _RANGES[name]
            zero = "0, or " if name in COUNTS else ""
            if not (low <= value <= high or (zero and value == 0)):
                got = f"{value:g}" if isinstance(value, float) else value
                raise ValueError(f"{name}: expected {zero}{low} to {high}, got {got}")
    for before, after in pairwise(points):
        if round(after[TIME] * 1e9) <= round(before[TIME] * 1e9):
            raise ValueError(f"{TIME}: expected more than {before[TIME]:g}, as in the line before, got {after[TIME]:g}")


_SPANS: Mapping[type[Quantity], tuple[float, float]] = {
    Delay: (0, 1000 * LONGEST_S),
    Rate: (LEAST_MBPS, MOST_MBPS),
    Ratio: (0, 100),
    Packets: (1, MOST_PACKETS),
}
_RANGES = {TIME: (0, LONGEST_S), **{column: _SPANS[each.unit] for column, each in TRACED.items()}}


def _check_columns(names: Iterable[str]) -> None:
    given = list(names)
    unknown = [name for name in given if name not in (TIME, *VALUES)]
    if unknown or TIME not in given or len(given) < 2:
        known = f"{TIME} and at least one of {', '.join(VALUES)}"
        raise ValueError(f"expected the columns {known}, got {_shown(given)}")
    if len(set(given)) < len(given):
        raise ValueError(f"two columns have the same name; keep one: {_shown(given)}")
    if "rtt_ms" in given and "one_way_ms" in given:
        raise ValueError("rtt_ms and one_way_ms set the same delay; keep one")


def _shown(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names)) or "none"
    return text if len(text) < 200 else f"{text[:200]}..."


def _point(fields: Iterable[tuple[str, str]]) -> Point:
    point = {name: number(name, text) for name, text in fields if text}
    if TIME not in point:
        raise ValueError(f"{TIME}: missing")
    return point
