"""Lines that a run says while it goes on."""

from wanbench.harness.run.progress import brief


def test_few_reasons_are_told_whole_and_of_many_the_first_two():
    assert brief("hung; cut off; no answer") == "hung; cut off; no answer"
    assert brief("; ".join("abcdefg")) == "a; b; and 5 more"
