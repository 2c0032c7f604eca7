"""Plain text and docstrings as Markdown, with tables and equations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import partial

from wanbench.harness.show import grid

markdown = partial(grid.markdown, marked=True)

_SPECIAL = re.compile(r"([\\*_<>\[\]|{}#~^$])")
_CODE = re.compile(r"(`[^`]+`)")
_RULE = re.compile(r"===[= ]*$")
_BULLET = re.compile(r"[*-] ")


def escaped(text: str) -> str:
    """Escape Markdown outside single backticks."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def fenced(text: str, language: str = "text") -> str:
    """Return text as a code block."""
    return f"```{language}\n{text}\n```\n"


def docstring(text: str) -> str:
    """Return a docstring as Markdown, with equations as code and without `Attributes`."""
    blocks = _blocks(inspect.cleandoc(text).partition("\nAttributes:\n")[0])
    return "\n\n".join(_block(lines) for lines in blocks)


def attributes(text: str) -> dict[str, str]:
    """Return the names and meanings below `Attributes:`."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(text).partition("\nAttributes:\n")[2].splitlines():
        entry = re.match(r"    ([\w, ]+): (.*)", line)
        if entry:
            names = [name.strip() for name in entry[1].split(",")]
            found |= dict.fromkeys(names, entry[2])
        elif line.startswith("     "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        elif line.strip():
            break
    return found


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines between blank lines as blocks."""
    block: list[str] = []
    for line in text.splitlines():
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _block(lines: list[str]) -> str:
    if all(line.startswith("    ") for line in lines):
        return fenced(inspect.cleandoc("\n" + "\n".join(lines)))
    if _RULE.match(lines[0]):
        return _grid(lines)
    if lines == ["::"]:
        return ""
    if _BULLET.match(lines[0]):
        return re.sub(r"(^|\n)\\\* ", r"\1* ", _strong("\n".join(lines)))
    text = _strong(" ".join(line.strip() for line in lines))
    return text.removesuffix(":") if text.endswith("::") else text


def _grid(lines: Sequence[str]) -> str:
    """Return a table between rules. The rules mark the columns; lines above a middle rule are the head."""
    columns = [match.span() for match in re.finditer("=+", lines[0])]
    spans = [
        (begin, end) for (begin, _), end in zip(columns, [*(next_ for next_, _ in columns[1:]), None], strict=True)
    ]
    rows = [None if _RULE.match(line) else [_strong(line[begin:end].strip()) for begin, end in spans] for line in lines]
    body = [row for row in rows[rows.index(None, 1) + 1 :] if row is not None]
    head = [row for row in rows[: rows.index(None, 1)] if row is not None]
    return markdown(head[0], body) if body else markdown([""] * len(spans), head)


def _strong(text: str) -> str:
    return re.sub(r"\\\*\\\*(.+?)\\\*\\\*", r"**\1**", escaped(text))
