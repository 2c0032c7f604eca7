"""Plain data as TOML."""

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


def document(plain: Mapping[str, Any]) -> str:
    """A file: single values, then tables, each followed by its arrays of tables."""
    lines = _pairs({name: item for name, item in plain.items() if not isinstance(item, Mapping)})
    for name, items in plain.items():
        if isinstance(items, Mapping):
            arrays = {inner: item for inner, item in items.items() if _is_array(item)}
            lines += ["", f"[{key(name)}]", *_pairs({inner: items[inner] for inner in items if inner not in arrays})]
            for inner, tables in arrays.items():
                for table in tables:
                    lines += ["", f"[[{key(name)}.{key(inner)}]]", *_pairs(table)]
    return "\n".join(lines) + "\n"


def _pairs(plain: Mapping[str, Any]) -> list[str]:
    return [f"{key(name)} = {value(item)}" for name, item in plain.items()]


def _is_array(plain: Any) -> bool:
    """Whether it is an array of tables."""
    return isinstance(plain, list) and bool(plain) and all(isinstance(item, Mapping) for item in plain)
