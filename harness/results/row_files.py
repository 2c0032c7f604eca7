"""Rows read from the files of repetitions. A command that needs them several times reads a file once.

Each is checked, so that an edited file, or one that a full disk cut short, is not shown as a result.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args

from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.results.columns import COLUMNS, TYPES, Column, Row, Status, empty

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class RowFiles:
    """The rows in files, each a result.json or an error.json. A file is read again once it has changed."""

    def __init__(self) -> None:
        self._cache: dict[Path, tuple[tuple[int, int, int], Row]] = {}

    def load(self, path: Path) -> Row:
        """The row in a file, for the caller to change. Raises: OSError; ValueError: the error in it."""
        stat = path.stat()
        version = stat.st_mtime_ns, stat.st_size, stat.st_ino
        cached = self._cache.get(path)
        if cached is None or cached[0] != version:
            cached = self._cache[path] = version, _load(path)
        return {**cached[1]}

    def find(self, path: Path) -> Row | None:
        """The row in a file; None if it is missing or not a row. Raises: OSError: it cannot be read just now."""
        try:
            return self.load(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None


def _load(path: Path) -> Row:
    row = parsed(path.read_text(encoding="utf-8"))
    if re.split("[.@]", path.parent.name)[0] != f"rep-{row['rep']}":
        raise ValueError(f"rep: expected the number in the folder's name, got {row['rep']}")  # a copied folder
    # The folder names the cell, even if an axis added later changes the name.
    return {**row, "cell": printable(path.parent.parent.name)}


def parsed(text: str) -> Row:
    """Parse a row. Raises: ValueError: the error in it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    row = data["row"] if isinstance(data, dict) and "row" in data else data
    if (wrong := flaw(row)) is not None:
        raise ValueError(wrong)
    columns = {key: printable(value) for key, value in row.items() if key in TYPES}  # not columns of an earlier version
    return cast(Row, empty() | columns)


def printable(value: Any) -> Any:
    """Text without control characters of a terminal, because a run can come from a stranger."""
    return _CONTROL.sub(" ", value) if isinstance(value, str) else value


_REQUIRED = (str, int, Status)
_MOST = 1 << 53  # the largest integer that every JSON reader keeps exactly


def flaw(row: object) -> str | None:
    """Return the error that makes `row` no valid row, or None.

    Columns whose type does not allow null are required. Others can be missing or null, as in rows of an earlier
    version, but a value must be of the right type. A loss can be infinite or NaN, because training can diverge.
    """
    if not isinstance(row, Mapping):
        return "expected an object"
    absent = [name for name, kind in TYPES.items() if kind in _REQUIRED and row.get(name) is None and name != "cell"]
    if absent:
        return f"{absent[0]}: missing"
    *words, last = get_args(Status)
    if row["status"] not in (*words, last):
        return f"status: expected {', '.join(words)} or {last}, got {row['status']!r}"
    if row["status"] == "ok" and row.get("step_time_s") is None:
        return "step_time_s: missing"
    for name, kind in TYPES.items():
        expected = None if row.get(name) is None else _expected(kind, COLUMNS[name], row[name])
        if expected is not None:
            return f"{name}: expected {expected}, got {row[name]!r}"[:200]
    for name, value in (row.get("params") or {}).items():  # those that choose a line style and a place in a legend
        if name in {"delay", "period"} and not _is_count(value):
            return f"params.{name}: expected a whole number, got {value!r}"[:200]
    try:
        PredictInputs.from_json(row.get("law_inputs") or {}) if row.get("law_inputs") else None
    except (TypeError, ValueError) as error:
        return f"law_inputs: {error}"[:200]
    return None


def _expected(kind: Any, column: Column, value: Any) -> str | None:
    """The type or range that was expected of a value; None if the value has it."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for described, (text, fits) in _KINDS.items():
        if described in kinds:
            return None if fits(value) else text
    if int in kinds and not _is_count(value):
        return "a whole number"
    inside = _is_number(value) and (
        (column.minimum is None or column.minimum <= value <= _MOST)
        and (column.above is None or column.above < value <= _MOST)
    )
    if inside:
        return None
    if column.above is not None:
        return f"a number above {column.above:g}"
    return "a number" if column.minimum is None else f"a number of at least {column.minimum:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_event(item: object) -> bool:
    """Whether it has the keys of `testbeds.base.Event` that are read; one that did not happen has no actual time."""
    return (
        isinstance(item, Mapping)
        and {"what", "actual_s"} <= item.keys()
        and (item["actual_s"] is None or _is_number(item["actual_s"]))
        and _is_number(item.get("asked_s"))
    )


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_KINDS: Mapping[Any, tuple[str, Callable[[object], bool]]] = {
    Status: ("a string", _is_text),
    str: ("a string", _is_text),
    Mapping[str, Any]: ("an object", lambda value: isinstance(value, Mapping)),
    list[dict[str, Any]]: ("a list of objects", _list_of(_is_event)),
    list[str]: ("a list of strings", _list_of(_is_text)),
}
