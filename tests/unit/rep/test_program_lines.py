"""What a user sees of the output of a program."""

from __future__ import annotations

import pytest

from wanbench.harness.rep.outputs import LONGEST, Lines, clean


def shown(*pieces):
    """The lines of pieces of output, each a second after the one before."""
    found: list[bytes] = []
    lines = Lines(found.append)
    for second, piece in enumerate(pieces):
        lines.add(piece, float(second))
    lines.flush()
    return found


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb", b"c\n"], [b"a", b"bc"]),
        ([b"a\r\nb\r", b"\nc"], [b"a", b"b", b"c"]),
        ([b"\n"], [b""]),
        ([b"no end"], [b"no end"]),
        ([b"\r 1 %", b"\r 2 %", b"\r 3 %\n"], [b" 1 %", b" 2 %", b" 3 %"]),
    ],
)
def test_output_is_cut_at_line_ends_and_at_updates(pieces, lines):
    assert shown(*pieces) == lines


def test_of_many_updates_one_a_second_is_shown_and_the_last():
    bar = b"".join(b"\r%d %%" % percent for percent in range(100))
    assert shown(bar, b"\r100 %\r\n") == [b"0 %", b"99 %", b"100 %"]


def test_output_without_a_line_end_is_shown_in_parts():
    found = shown(b"x" * (3 * LONGEST))
    assert b"".join(found) == b"x" * (3 * LONGEST)
    lines = Lines(lambda line: None)
    lines.add(b"x" * (2 * LONGEST), 0.0)
    assert not lines._rest


@pytest.mark.parametrize(
    ("line", "plain", "coloured"),
    [
        (b"\x1b[31mred\x1b[0m", b"red", b"\x1b[31mred\x1b[0m"),
        (b"\x1b[2J\x1b[Hgone", b"gone", b"gone"),
        (b"\x1b]0;title\x07text", b"text", b"text"),
        (b"\x1b]0;title\x1b\\text", b"text", b"text"),
        (b"bell\x07 tab\tback\x08", b"bell tab\tback", b"bell tab\tback"),
        (b"\xc3\xa9 100 %", b"\xc3\xa9 100 %", b"\xc3\xa9 100 %"),
        (b"cut \x1b", b"cut ", b"cut "),
    ],
)
def test_escape_sequences_are_removed_except_colours_in_a_terminal(line, plain, coloured):
    assert clean(line, colours=False) == plain
    assert clean(line, colours=True) == coloured
