"""On a terminal, no line is wider than the terminal; in a pipe, every line keeps its width."""

from __future__ import annotations

import pytest
from command_line import as_it_was, finished, wanbench  # noqa: F401  # the fixture is used by all

from wanbench.harness.cli import terminal

TABLE = """\
algorithm   rtt  step ms  stall ms  scalability
---------  ----  -------  --------  -----------
ssgd       10ms    100.0      70.0        0.300
dts        10ms  failed: rank 1 did not answer in time

Scalability is the step time of one worker over that of four.
"""


def test_a_wide_table_is_folded_and_repeats_its_first_column():
    assert (
        terminal.fitted(TABLE, 32)
        == """\
algorithm   rtt  step ms
---------  ----  -------
ssgd       10ms    100.0
dts        10ms  failed: rank...

algorithm  stall ms  scalability
---------  --------  -----------
ssgd           70.0        0.300

Scalability is the step time of
one worker over that of four.
"""
    )


def test_a_paragraph_is_wrapped_to_the_new_width():
    text = "a sentence of four words and\nmore of them\n\nanother"
    assert terminal.fitted(text, 20) == "a sentence of four\nwords and more of\nthem\n\nanother"


def test_a_table_that_fits_is_not_changed():
    assert terminal.fitted(TABLE, 100) == TABLE


@pytest.mark.parametrize(
    "args",
    [
        *(("list", kind) for kind in ("algorithms", "compressors", "workloads", "profiles", "experiments", "keys")),
        ("list", "columns"), ("plan", "latency-sweep"), ("results", "smoke"), ("results", "--format", "pivot"),
        ("verify", "smoke"), ("show", "algorithm", "dts"), ("show", "profile", "world4"), ("doctor",),
    ],
)  # fmt: skip
@pytest.mark.parametrize("columns", [60, 100])
def test_no_line_is_wider_than_the_terminal(tmp_path, monkeypatch, args, columns):
    finished(tmp_path, statuses=("ok", "ok", "ok", "failed", "ok"))
    monkeypatch.setattr(terminal, "_columns", lambda _: columns)
    lines = wanbench(*args).stdout.splitlines()
    assert lines
    assert max(map(len, lines)) <= columns
