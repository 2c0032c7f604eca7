"""The one reader of files that a user names: regular files of limited size, and TOML of limited depth.

A device, a pipe or a whole disk image would fill the memory or never end, and Python's TOML parser and all code that
walks over its result recurse.
"""

from __future__ import annotations

import codecs
import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from wanbench.netprofiles.errors import FileError

MOST_BYTES = 64 << 20  # the ping of a week, or the paths between a thousand sites
MOST_DEPTH = 20  # tables and lists in each other; no spec or profile needs more than six
MOST_BITS = 63  # of a whole number, with its sign as another one


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
    if (found := flaw(data)) is not None:
        raise FileError(found)
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
