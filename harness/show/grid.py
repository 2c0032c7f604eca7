"""Tables as text, aligned or in Markdown, and the words of their entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wanbench.harness.analysis.order import absent


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry, the first flush left.

    A line that is shorter than the header ends in a remark, which may run on to the right.
    """
    complete = [line if len(line) == len(header) else line[:-1] for line in lines]
    widths = [
        max(len(title), *(len(line[i]) for line in complete if i < len(line)), 0) for i, title in enumerate(header)
    ]
    text = []
    for line in [header, ["-" * width for width in widths], *lines]:
        padded = [entry.rjust(width) for entry, width in zip(line, widths, strict=False)]
        padded[0] = line[0].ljust(widths[0])
        if len(line) < len(header):
            padded[-1] = line[-1]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text) + "\n"


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """A GitHub-flavoured table; entries are Markdown.

    Args:
        numbers: all columns but the first are flush right.
    """
    rule = [":--", *["--:"] * (len(header) - 1)] if numbers else ["---"] * len(header)
    joined = (" | ".join(line).replace("\n", " ") for line in [header, rule, *lines])
    return "".join(f"| {line} |\n" for line in joined)


def some(names: Sequence[str], most: int) -> str:
    """The first of many, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown(value: object) -> str:
    """An entry: numbers without superfluous digits, "-" for what is absent."""
    if absent(value):
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
