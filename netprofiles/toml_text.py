"""Plain data as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def key(text: str) -> str:
    """A key, in quotes if it needs them."""
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else value(text)


def value(plain: Any) -> str:
    """A value on one line: text in quotes, with escapes that JSON and TOML share. Names of any script stay readable."""
    if isinstance(plain, Mapping):
        return "{ " + ", ".join(f"{key(name)} = {value(item)}" for name, item in plain.items()) + " }"
    if isinstance(plain, list | tuple):
        return f"[{', '.join(map(value, plain))}]"
    return json.dumps(plain, allow_nan=False, ensure_ascii=False).replace("\x7f", "\\u007f")


def table(name: str, items: Mapping[str, Any]) -> list[str]:
    """The lines of a table, after an empty one."""
    return ["", f"[{key(name)}]", *(f"{key(entry)} = {value(item)}" for entry, item in items.items())]


def document(plain: Mapping[str, Any]) -> str:
    """A file: single values, then tables."""
    lines = [f"{key(name)} = {value(item)}" for name, item in plain.items() if not isinstance(item, Mapping)]
    for name, items in plain.items():
        if isinstance(items, Mapping):
            lines += table(name, items)
    return "\n".join(lines) + "\n"
