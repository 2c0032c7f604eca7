"""The man page, generated from the help of the commands.   make man

It is committed, because `pip install` installs it for `man wanbench`. A test fails when it is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from wanbench_docs.commands import Command, Paragraph, commands, preface


def page() -> str:
    """Return the page in the man macros of roff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    found = list(commands())
    yield '.TH WANBENCH 1 "" "wanbench" "User Commands"'  # no date: equal commands give equal bytes
    yield from (".SH NAME", r"wanbench \- which distributed training algorithm scales on this network")
    yield from (".SH SYNOPSIS", ".B wanbench", r"\fICOMMAND\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...")
    yield ".SH DESCRIPTION"
    for paragraph in preface():
        yield from _paragraph(paragraph)
    yield ".SH COMMANDS"
    for command in found:
        yield from (".TP", rf"\fB{_plain(command.name)}\fR", _text(command.summary))
    for command in found:
        yield from _section(command)
    yield from (".SH SEE ALSO", ".BR tc (8),", ".BR tc-netem (8),", ".BR torchrun (1)")


def _section(command: Command) -> Iterator[str]:
    yield from (f'.SH "{_plain(command.name).upper()}"', ".PP", rf"\fB{_plain(command.usage)}\fR")
    for paragraph in command.paragraphs:
        yield from _paragraph(paragraph)
    for spelling, meaning in command.options:
        yield from (".TP", rf"\fB{_plain(spelling)}\fR", _text(meaning))
    yield from (".PP", "Examples:", ".PP", ".nf", ".RS", *map(_text, command.examples), ".RE", ".fi")


def _paragraph(paragraph: Paragraph) -> Iterator[str]:
    if paragraph.verbatim:
        yield from (".PP", ".nf", *map(_text, paragraph.text.splitlines()), ".fi")
    else:
        yield from (".PP", _text(paragraph.text))


def _plain(text: str) -> str:
    """Escape characters that roff would read as a command or a typographic dash."""
    return (
        text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga").replace("^", r"\(ha")
    )


def _text(line: str) -> str:
    """Return a line of text whose leading dot is not a request."""
    plain = _plain(line).replace("~", r"\(ti")
    return rf"\&{plain}" if plain.startswith(".") else plain


if __name__ == "__main__":
    sys.stdout.write(page())
