"""A recorded trace of a path: a CSV file with one line for each change of its values."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from harness.errors import SpecError

TIME = "time_s"
VALUES = ("rtt_ms", "one_way_ms", "jitter_ms", "rate_mbps", "loss_pct")
MOST_LINES = 2000

Point = dict[str, float]


def read_trace(path: Path, where: str) -> list[Point]:
    """The lines of a trace, each `time_s` and what is valid from then on.

    Columns: `time_s`, which grows from line to line, and at least one of `VALUES`; an empty field leaves the value as
    it was in the line before, or, in the first line, as it is without the trace.

    Raises:
        SpecError: no such file, or a line that is none; `where` names the spec's key.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            _check_columns(reader.fieldnames or [], path, where)
            points: list[Point] = []
            for fields in reader:
                point = _point(fields, f"{where}: {path}: line {reader.line_num}")
                if points and point[TIME] <= points[-1][TIME]:
                    raise SpecError(
                        f"{where}: {path}: line {reader.line_num}: {TIME}: expected more than in the line before"
                    )
                points.append({**(points[-1] if points else {}), **point})
    except OSError as error:
        raise SpecError(f"{where}: {path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{where}: {path}: not a CSV file in UTF-8: {error}") from None
    if not 1 <= len(points) <= MOST_LINES:
        raise SpecError(f"{where}: {path}: expected 1 to {MOST_LINES} lines of values, got {len(points)}")
    return points


def _check_columns(names: object, path: Path, where: str) -> None:
    given = list(names) if isinstance(names, list | tuple) else []
    unknown = [name for name in given if name not in (TIME, *VALUES)]
    if unknown or TIME not in given or len(given) < 2:
        known = f"{TIME} and at least one of {', '.join(VALUES)}"
        raise SpecError(f"{where}: {path}: expected the columns {known}, got {', '.join(map(repr, given)) or 'none'}")
    if "rtt_ms" in given and "one_way_ms" in given:
        raise SpecError(f"{where}: {path}: rtt_ms and one_way_ms say the same; keep one")


def _point(fields: dict[str, str], at: str) -> Point:
    point: Point = {}
    for name, text in fields.items():
        if name is None or text is None:
            raise SpecError(f"{at}: expected as many fields as the first line has")
        if text.strip():
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            most = 100.0 if name == "loss_pct" else math.inf
            if not (0 <= value <= most and math.isfinite(value)) or (name == "rate_mbps" and not value):
                raise SpecError(f"{at}: {name}: expected a number of at least 0, got {text!r}")
            point[name] = value
    if TIME not in point:
        raise SpecError(f"{at}: {TIME}: missing")
    return point
