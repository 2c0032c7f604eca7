"""Rows in files: parsed strictly, because a run can come from a stranger."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.row_schema import flaw

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def read_row(path: Path) -> Row | None:
    """The row in a result.json or an error.json; None if it is missing or cannot be read."""
    try:
        return load_row(path)
    except (OSError, ValueError):
        return None


def load_row(path: Path) -> Row:
    """Read a row. Raises: OSError; ValueError: the error in it."""
    row = parsed_row(path.read_text(encoding="utf-8"))
    if re.split("[.@]", path.parent.name)[0] != f"rep-{row['rep']}":
        raise ValueError(f"rep: expected the number in the folder's name, got {row['rep']}")  # a copied folder
    # The folder names the cell, even if an axis added later changes the name.
    return {**row, "cell": printable(path.parent.parent.name)}


def parsed_row(text: str) -> Row:
    """Parse a row. Raises: ValueError: the error in it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    row = data["row"] if isinstance(data, dict) and "row" in data else data
    wrong = flaw(row)
    if wrong is not None:
        raise ValueError(wrong)
    return cast(Row, empty() | {key: printable(value) for key, value in row.items()})


def printable(value: Any) -> Any:
    """Text without control characters of a terminal, because a run can come from a stranger."""
    return _CONTROL.sub(" ", value) if isinstance(value, str) else value
