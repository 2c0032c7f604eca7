"""Only regular files of limited size are read, and what is in them is bounded."""

import os

import pytest

from wanbench.netprofiles import FileError
from wanbench.netprofiles.user_file import flaw, parse_toml, read_text


def refused(file, **more):
    with pytest.raises(FileError) as caught:
        read_text(file, **more)
    return str(caught.value)


def test_devices_pipes_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for file in ("/dev/zero", tmp_path / "pipe", tmp_path):
        assert refused(file).startswith("not a regular file")


def test_a_file_above_the_limit_is_refused(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x" * (1 << 20))
    assert len(read_text(file, most_bytes=1 << 20)) == 1 << 20
    file.write_bytes(b"x" * ((1 << 20) + 1))
    assert refused(file, most_bytes=1 << 20) == "too large; expected at most 1 MiB"


@pytest.mark.parametrize("text", ["x = " + "[" * 500 + "]" * 500, f"[{'.'.join('a' * 500)}]\nb = 1"])
def test_deep_nesting_is_refused(text):
    with pytest.raises(FileError, match=r"nested too deeply; expected at most 20 tables and lists in each other$"):
        parse_toml(text)


def test_whole_numbers_have_63_bits():
    assert flaw({"a": [2**63 - 1, -(2**63 - 1)]}) is None
    assert flaw({"a": [1, 2**63]}) == "a.1: expected a whole number of at most 63 bits, got one of 64"
