"""Progress of a run on stderr."""

from __future__ import annotations

from wanbench.harness.run.progress import Reporter, brief


def test_few_reasons_are_given_in_full_and_many_are_cut_to_two():
    assert brief("hung; cut off; no answer") == "hung; cut off; no answer"
    assert brief("; ".join("abcdefg")) == "a; b; and 5 more"


def test_each_repetition_has_a_line_with_the_time_that_is_left(capsys):
    reporter = Reporter(2)
    reporter.finished("ssgd  rep 0", 100.0)
    reporter.finished("dts  rep 0", 100.0)
    assert capsys.readouterr().err == "[1/2] ssgd  rep 0   (1 min 40 s left)\n[2/2] dts  rep 0\n"


def test_a_time_that_is_not_known_is_not_shown(capsys):
    Reporter(2).finished("ssgd  rep 0", None)
    assert capsys.readouterr().err == "[1/2] ssgd  rep 0\n"
