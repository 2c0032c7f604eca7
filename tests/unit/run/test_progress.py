"""Progress of a run on stderr."""

from __future__ import annotations

import io
import sys

from wanbench.harness.run.progress import Reporter, brief


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_few_reasons_are_given_in_full_and_many_are_cut_to_two():
    assert brief("hung; cut off; no answer") == "hung; cut off; no answer"
    assert brief("; ".join("abcdefg")) == "a; b; and 5 more"


def report(stream: io.StringIO, monkeypatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    reporter = Reporter(2)
    reporter.eta(100.0)
    reporter.finished("ssgd  rep 0")
    reporter.finished("dts  rep 0")
    reporter.close()
    return stream.getvalue()


def test_a_pipe_gets_one_line_per_event_with_the_time_that_is_left(monkeypatch):
    assert report(io.StringIO(), monkeypatch) == "[1/2] ssgd  rep 0   (1 min 40 s left)\n[2/2] dts  rep 0\n"


def test_a_time_that_is_not_known_is_not_shown(capsys):
    reporter = Reporter(2)
    reporter.eta(None)
    reporter.finished("ssgd  rep 0")
    assert capsys.readouterr().err == "[1/2] ssgd  rep 0\n"


def test_a_terminal_gets_a_bar_as_well(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = report(Terminal(), monkeypatch)
    assert "[1/2] ssgd  rep 0" in shown
    assert "2/2 reps, about" in shown
