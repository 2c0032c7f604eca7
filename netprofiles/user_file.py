"""The one reader of files that a user names: regular files of limited size, TOML of limited depth, and tables.

A device, a pipe or a whole disk image would fill the memory or never end, and Python's TOML parser and all code that
walks over its result recurse. A table has a row a line, with a comma, a tab or blanks between its cells.
"""

import codecs
import csv
import io
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wanbench.netprofiles.errors import FileError

MOST_BYTES = 64 << 20  # the ping of a week, or the paths between a thousand sites
MOST_DEPTH = 20  # tables and lists in each other; no spec or profile needs more than six
MOST_BITS = 63  # of a whole number, with its sign as another one

_NUMBERS = "'.' before decimals and nothing between thousands"
_SEPARATED = re.compile(r"\d([,'\s])\d")


def read_text(file: Path, form: str = "", most_bytes: int = MOST_BYTES, errors: str = "strict") -> str:
    """Return the text of a file, without a byte order mark.

    Args:
        form: the format that was expected, for messages.
        errors: "replace" for what other tools print: Windows has many encodings, but their digits are the same.

    Raises:
        FileError: it cannot be opened, is no regular file, is too large, or is neither UTF-8 nor UTF-16 with a byte
            order mark, as PowerShell writes it. Its path is not in the message.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer blocks
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a null character
        raise FileError("cannot be read: not the name of a file") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileError("not a regular file; copy what it contains to a file, and give that")
        with open(descriptor, "rb", closefd=False) as opened:
            data = opened.read(most_bytes + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    return as_text(data, form, most_bytes, errors)


def as_text(data: bytes, form: str = "", most_bytes: int = MOST_BYTES, errors: str = "strict") -> str:
    """Decode what was read up to one byte more than the limit. Raises: FileError."""
    if len(data) > most_bytes:
        raise FileError(f"too large; expected at most {most_bytes >> 20} MiB")
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    try:
        return data.decode(encoding, errors).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise FileError(f"not a text file; expected {form and f'{form} in '}UTF-8") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises: FileError: it is not valid, or `flaw` finds something in it."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise FileError(f"nested too deeply; expected at most {MOST_DEPTH} tables and lists in each other") from None
    except ValueError as error:  # from tomllib, or for a number with too many digits
        raise FileError(f"not valid TOML: {error}") from None
    if (problem := flaw(data)) is not None:
        raise FileError(problem)
    return data


def flaw(data: object) -> str | None:
    """Return what is out of bounds in plain data: its depth, a number, or a key. None if nothing is."""
    level: list[tuple[str, Any]] = [("", data)]
    for _ in range(MOST_DEPTH + 1):
        below: list[tuple[str, Any]] = []
        for key, value in level:
            if isinstance(value, dict):
                if (odd := next((name for name in value if not str(name).isprintable()), None)) is not None:
                    return f"{key or 'the file'}: {str(odd)[:60]!r}: expected a key without control characters"
                below += ((f"{key}.{name}" if key else str(name), inner) for name, inner in value.items())
            elif isinstance(value, list | tuple):
                below += ((f"{key}.{index}", inner) for index, inner in enumerate(value))
            elif isinstance(value, float) and not math.isfinite(value):
                return f"{key}: expected a finite number, got {value}"
            elif isinstance(value, int) and value.bit_length() > MOST_BITS:
                return f"{key}: expected a whole number of at most {MOST_BITS} bits, got one of {value.bit_length()}"
        if not below:
            return None
        level = below
    deepest = level[0][0].partition(".")[0]
    return f"{deepest}: nested too deeply; expected at most {MOST_DEPTH} tables and lists in each other"


def read_table(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line with cells, and its cells without the blanks around them.

    Empty lines and lines that begin with `#` are comments; a name that does is quoted: `"#1"`. Empty cells behind the
    last column do not count. If the first line has no comma, cells are separated by tabs, and if it has no tab, by
    blanks.

    Raises:
        FileError: begins with the line; cells are separated by `;`, or by `|` as in Markdown, or a line has another
            number of them than the first one, or a quote is not closed.
    """
    lines = io.StringIO(text, newline="")
    first = next((line for line in lines if not _is_comment(line)), "")
    other = max(";|", key=first.count)
    if first.count(other) > first.count(","):
        number = text[: lines.tell()].count("\n") or 1
        raise FileError(f"line {number}: cells are separated by {other!r}; expected ',' between cells, {_NUMBERS}")
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
    separator = _SEPARATED.search(text)
    return f"; {separator[1]!r} separates digits, expected {_NUMBERS}" if separator else ""
