"""The one reader of tables: a row a line, with a comma, a tab or blanks between its cells."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator

from wanbench.netprofiles.errors import FileError

_NUMBERS = "'.' before decimals and nothing between thousands"
_SEPARATED = re.compile(r"\d([,'\s])\d")


def read_table(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line with cells, and its cells without the blanks around them.

    Empty lines and lines that begin with `#` are comments; a name that does is quoted: `"#1"`. Empty cells behind the
    last column do not count. If the first line has no comma, cells are separated by tabs, and if it has no tab, by
    blanks.

    Raises:
        FileError: begins with the line; cells are separated by `;`, or a line has another number of them than the
            first one, or a quote is not closed.
    """
    lines = io.StringIO(text, newline="")
    first = next((line for line in lines if not _is_comment(line)), "")
    if first.count(";") > first.count(","):
        number = text[: lines.tell()].count("\n") or 1
        raise FileError(f"line {number}: cells are separated by ';'; expected ',' between cells, {_NUMBERS}")
    mark = next((mark for mark in ",\t" if mark in first), " ")
    rows = ("\n" if _is_comment(line) else line for line in io.StringIO(text, newline=""))
    reader = csv.reader(rows, delimiter=mark, skipinitialspace=True, strict=True)
    begin, width = 0, 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            while len(cells) > width and cells[-1:] == [""]:
                cells.pop()
            if not any(cells):
                continue
            begin, width = begin or reader.line_num, width or len(cells)
            if len(cells) != width:
                raise FileError(f"line {reader.line_num}: {len(cells)} cells; expected {width}, as in line {begin}")
            yield reader.line_num, cells
    except csv.Error as error:
        raise FileError(f"line {reader.line_num}: {error}; is a quote not closed?") from None


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def number(what: str, value: object, factor: float = 1.0) -> float:
    """Return the number in a cell, times `factor`. Raises: FileError: begins with `what`; not finite, or below 0."""
    try:
        result = float(str(value)) * factor
    except ValueError:
        raise FileError(f"{what}: expected a number, got {value!r}{separators(str(value))}") from None
    if not 0 <= result < math.inf:
        raise FileError(f"{what}: expected a finite number of 0 or more, got {value!r}")
    return result


def separators(text: str) -> str:
    """Return what is wrong with a number that has separators, as the end of a message; empty if it has none."""
    found = _SEPARATED.search(text)
    return f"; {found[1]!r} separates digits, expected {_NUMBERS}" if found else ""
