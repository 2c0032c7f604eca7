"""`trace`: print a recording as a trace."""

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401


def test_the_trace_is_on_stdout_and_what_was_read_on_stderr(tmp_path):
    (tmp_path / "lte.down").write_text("500\n1000\n1500\n2000\n")
    result = wanbench("trace", "lte.down", "--every", "500ms")
    assert result.stdout == "time_s,rate_mbps\n0,0.024\n0.5,0.024\n1,0.024\n1.5,0.024\n"
    assert result.stderr == "lte.down: mahimahi, 2 s, 4 lines of 0.5 s\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["none.txt"], "none.txt: cannot be read: No such file or directory"),
        (["binary"], "binary: expected a mahimahi trace, "),
        (["lte.down", "--every", "0s"], "--every: expected more than 0, such as '1s'"),
        (["lte.down", "--every", "1"], "--every: '1' has no unit; a delay is a number and one of ns, us, ms, s"),
    ],
)
def test_unusable_input_is_reported_in_one_line(tmp_path, args, line):
    (tmp_path / "lte.down").write_text("500\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\x00")
    assert refused("trace", *args).startswith(f"wanbench: {line}")
