"""Tables as text, aligned or in Markdown, and how their entries are written."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

_PIPED_WIDTH = 110
_LONGEST = 32
# What Markdown could take for a mark. An underscore inside a word, or a bracket without a link, is none.
_MARKDOWN = re.compile(r"[\\`*~|]|(?<!\w)_|_(?!\w)|\[(?=[^\]]*\][(\[])")


def width_of_output() -> int:
    """The width of the terminal that stdout writes to, or a fixed width when stdout is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry; the first and those of words are flush left, numbers flush right.

    A title can have several lines. A line that is shorter than the header ends in a remark, which can extend to the
    right.
    """
    complete = [line if len(line) == len(header) else line[:-1] for line in lines]
    titles = [title.split("\n") for title in header]
    height = max(map(len, titles))
    titles = [[""] * (height - len(title)) + title for title in titles]
    widths = [
        max(*map(len, title), *(len(line[i]) for line in complete if i < len(line)), 0)
        for i, title in enumerate(titles)
    ]
    flush_left = [i == 0 or _is_words([line[i] for line in complete if i < len(line)]) for i in range(len(header))]
    text = []
    for line in [*zip(*titles, strict=True), ["-" * width for width in widths], *lines]:
        columns = zip(line, widths, flush_left, strict=False)
        padded = [entry.ljust(width) if words else entry.rjust(width) for entry, width, words in columns]
        if len(line) < len(header):
            padded[-1] = line[-1]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text) + "\n"


def _is_words(entries: Sequence[str]) -> bool:
    words = [entry for entry in entries if entry not in ("", "-")]
    return bool(words) and all(word[0].isalpha() for word in words)


def fitted(
    header: Sequence[str], lines: Sequence[Sequence[str]], drop: Sequence[str], width: int
) -> tuple[str, list[str]]:
    """An aligned table that is at most `width` characters wide if possible, and the titles of the dropped columns.

    A table that is too wide first has its long entries shortened, then loses columns. Remarks are never shortened.

    Args:
        drop: titles of the columns that can be dropped, in this order. They are to the right of any remark.
    """
    dropped: list[str] = []
    if _width(header, lines) > width:
        lines = [[line[0], *map(_shortened, line[1:])] if len(line) == len(header) else line for line in lines]
    for title in dict.fromkeys(drop):
        if title not in header or _width(header, lines) <= width:
            continue
        kept = [index for index, other in enumerate(header) if other != title]
        lines = [[line[index] for index in kept if index < len(line)] for line in lines]
        header = [header[index] for index in kept]
        dropped.append(title.replace("\n", " "))
    return aligned(header, lines), dropped


def _width(header: Sequence[str], lines: Sequence[Sequence[str]]) -> int:
    return max(map(len, aligned(header, [line for line in lines if len(line) == len(header)]).splitlines()))


def _shortened(entry: str) -> str:
    return entry if len(entry) <= _LONGEST else f"{entry[: _LONGEST - 1]}…"


def left_out(dropped: Sequence[str], where: str) -> str:
    """A line that names the columns that `fitted` dropped, and where they are shown; "" if it dropped none."""
    plural = "s" if len(dropped) > 1 else ""
    return f"Column{plural} left out to fit the width: {', '.join(dropped)}. {where}\n" if dropped else ""


def markdown(
    header: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = False, marked: bool = False
) -> str:
    """A GitHub-flavoured table.

    Args:
        numbers: all columns but the first are flush right. marked: entries are Markdown, not text.
    """
    rule = [":--", *["--:"] * (len(header) - 1)] if numbers else ["---"] * len(header)
    written = [[entry.replace("\n", " ") if marked else as_written(entry) for entry in row] for row in (header, *lines)]
    return "".join(f"| {' | '.join(entries)} |\n" for entries in [written[0], rule, *written[1:]])


def as_written(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;")).replace("\n", " ")
