"""Text for the user: on a terminal no line is wider than the terminal, elsewhere every line keeps its width."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TextIO

import click

_LEAST = 40  # narrower terminals get lines of this width
_CUT = "..."
_PROSE = re.compile(r"\S+( \S+)*")
_RULE = re.compile(r"-+(  -+)+\s*")


def show(text: str, *, err: bool = False) -> None:
    """Print text that may hold tables."""
    columns = _columns(sys.stderr if err else sys.stdout)
    click.echo(text if columns is None else fitted(text, columns), err=err)


def show_entry(head: str, text: str) -> None:
    """Print `text` behind `head`; lines that follow are indented alike."""
    columns = _columns(sys.stdout)
    if columns is None:
        click.echo(head + text)
        return
    indent = " " * min(len(head), columns // 3)
    click.echo(textwrap.fill(head + text, columns, subsequent_indent=indent, break_on_hyphens=False))


def fitted(text: str, columns: int) -> str:
    """Fold tables into blocks that repeat the first column, and wrap other lines.

    Args:
        text: a table is a header, a rule of dashes for each column, and lines up to an empty one.
    """
    lines = text.split("\n")
    out: list[str] = []
    while lines:
        if len(lines) > 1 and _RULE.fullmatch(lines[1]):
            end = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
            table, lines = lines[:end], lines[end:]
            out += table if max(map(len, table)) <= columns else _folded(table, columns)
            continue
        line = lines.pop(0)
        while columns < len(line.rpartition("\n")[2]) and lines and _PROSE.fullmatch(lines[0]):
            line += f"\n{lines.pop(0)}"  # a paragraph that was filled to a larger width
        indent = " " * (len(line) - len(line.lstrip()))
        out += textwrap.wrap(line, columns, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(out)


def _folded(table: list[str], columns: int) -> Iterator[str]:
    """The blocks of a table, with an empty line between them."""
    (_, first), *spans = [match.span() for match in re.finditer("-+", table[1])]
    first = min(first, columns // 2)
    blocks: list[tuple[int, int]] = []
    for start, end in spans:
        if blocks and first + 2 + end - blocks[-1][0] <= columns:
            blocks[-1] = blocks[-1][0], end
        else:
            blocks.append((start, end))
    for number, (start, end) in enumerate(blocks):
        if number:
            yield ""
        for line in table:
            remark = any(line[at - 2 : at].strip() for at, _ in spans)  # a failure's reason runs across columns
            if number and remark:
                continue
            part = line[start:] if remark or number == len(blocks) - 1 else line[start:end]
            yield _cut(f"{_cut(line[: spans[0][0] - 2].rstrip(), first):{first}}  {part}".rstrip(), columns)


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else line[: columns - len(_CUT)] + _CUT


def _columns(stream: TextIO) -> int | None:
    """The width of the terminal that a stream leads to; None if it leads elsewhere."""
    return max(_LEAST, shutil.get_terminal_size().columns) if stream.isatty() else None
