"""What a failed repetition says cannot command a terminal."""

from wanbench.harness.errors import RepFailed


def test_a_failure_and_its_log_have_no_control_characters():
    failed = RepFailed("worker 0: \x1b[31mred\x07", ("\x1b]0;title\x07line\x1b[2J", "tab\tstays", "ü 🌍"))
    assert str(failed) == "worker 0: red"
    assert failed.log_tail == ("line", "tab\tstays", "ü 🌍")
