"""Rows read from the files of repetitions, and checked. A command that needs them several times reads a file once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from wanbench.harness.results.columns import Row, empty
from wanbench.harness.results.row_schema import flaw

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class RowFiles:
    """The rows in files, each a result.json or an error.json. A file is read again once it has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int], Row]] = {}

    def load(self, path: Path) -> Row:
        """The row in a file, for the caller to change. Raises: OSError; ValueError: the error in it."""
        found = path.stat()
        version = found.st_mtime_ns, found.st_size, found.st_ino
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = version, _load(path)
        return {**known[1]}

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
    wrong = flaw(row)
    if wrong is not None:
        raise ValueError(wrong)
    return cast(Row, empty() | {key: printable(value) for key, value in row.items()})


def printable(value: Any) -> Any:
    """Text without control characters of a terminal, because a run can come from a stranger."""
    return _CONTROL.sub(" ", value) if isinstance(value, str) else value
