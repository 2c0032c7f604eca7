"""Whatever the environment of a command is, its exit code is a documented one, and 1 is nothing but a regression."""

from __future__ import annotations

import math
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all

from wanbench.harness.cli import COMMANDS, main
from wanbench.harness.cli.init_command import STARTER
from wanbench.harness.cli.options import FiniteRange
from wanbench.harness.errors import SpecError, masked
from wanbench.harness.gate import noise
from wanbench.harness.run.manifest import manifest
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles.user_file import flaw

ENTRY = "from wanbench.entry import main; main()"


def command(*args: str, **more) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run([sys.executable, "-c", ENTRY, *args], stderr=subprocess.PIPE, text=True, check=False, **more)


# ---------------------------------------------------------------- before the command begins


def instead_of_click(folder: Path, code: str) -> dict[str, str]:
    """An environment in which the first package that a command imports is this code."""
    (folder / "click.py").write_text(code)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_an_interruption_during_the_first_import_is_one_line_and_130(tmp_path):
    stopping = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    stopping += "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    done = command("list", "keys", env=instead_of_click(tmp_path, stopping))
    assert (done.returncode, done.stderr) == (130, "wanbench: interrupted\n")


def test_a_damaged_package_is_an_internal_error_and_no_regression(tmp_path):
    done = command("list", "keys", env=instead_of_click(tmp_path, "raise ImportError('no room')"))
    assert (done.returncode, done.stderr) == (70, "wanbench: internal error: ImportError: no room\n")


# ---------------------------------------------------------------- signals and streams


HANGING_UP = """
import os, signal, sys, types
from wanbench.harness.cli.options import interruptible
from wanbench.harness.errors import Interrupted
signal.signal(signal.SIGHUP, signal.{before})
cli = types.ModuleType("cli")
def main(prog_name):
    try:
        with interruptible("kept"):
            os.kill(os.getpid(), signal.SIGHUP)
            signal.pause() if signal.{before} == signal.SIG_DFL else None
    except Interrupted as error:
        sys.exit(error.exit_code)
cli.main = main
from wanbench.entry import main as entry
sys.modules["wanbench.harness.cli"] = cli
entry()
"""


@pytest.mark.parametrize(("before", "code"), [("SIG_DFL", 130), ("SIG_IGN", 0)], ids=["terminal", "nohup"])
def test_a_terminal_that_closes_ends_a_run_as_sigterm_does_and_nohup_keeps_it(before, code):
    program = HANGING_UP.replace("{before}", before)
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_stream_changes_no_answer_and_no_file_gets_its_number(closed, tmp_path):
    def close() -> None:
        for number in closed:
            os.close(number)

    done = command("init", "mine.toml", cwd=tmp_path, stdout=subprocess.DEVNULL, preexec_fn=close)
    assert done.returncode == 0
    written = (tmp_path / "mine.toml").read_text()
    assert written == STARTER.read_text().replace("@NAME@", "mine").replace("@FILE@", "mine.toml")
    assert done.stderr == ("" if 2 in closed else "edit it, then: wanbench plan mine.toml\n")


def test_a_full_disk_behind_a_pipe_is_this_host_and_a_reader_that_ends_is_nothing(tmp_path):
    with open("/dev/full", "w") as full:
        done = command("list", "keys", stdout=full)
    assert (done.returncode, done.stderr) == (3, "wanbench: No space left on device\n")
    read, write = os.pipe()
    os.close(read)
    done = command("list", "keys", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_the_terminal_cannot_show_is_escaped(tmp_path):
    western = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = command("init", "Zürich 東京.toml", cwd=tmp_path, env=western, stdout=subprocess.PIPE, encoding="latin-1")
    assert (done.returncode, done.stdout) == (0, "Zürich \\u6771\\u4eac.toml\n")


def test_an_argument_that_is_not_utf_8_is_written_as_it_came(tmp_path):
    done = subprocess.run(
        [sys.executable.encode(), b"-c", ENTRY.encode(), b"init", b"\xff.yaml"], capture_output=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == b"wanbench: \xff.yaml: expected a name that ends in .toml\n"


def test_a_working_folder_that_was_removed_is_named(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = command("list", "keys", cwd=gone, preexec_fn=gone.rmdir)
    told = "wanbench: the working folder no longer exists; change to another one\n"
    assert (done.returncode, done.stderr) == (3, told)


# ---------------------------------------------------------------- a user without a home


@pytest.fixture
def nobody(monkeypatch) -> None:
    """This process as that of a user without HOME and without an entry in the list of users."""

    def no_entry(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
def test_without_a_home_noise_is_unknown_and_nothing_is_written_where_others_could_write():
    path = noise.default_path()
    assert path.is_absolute()
    assert not path.is_relative_to(tempfile.gettempdir())
    assert noise.read(path, "e", "netns").cells == {}


# ---------------------------------------------------------------- numbers


def options() -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(main)
    for name in COMMANDS:
        found = main.get_command(context, name)
        assert found is not None
        yield from ((name, parameter) for parameter in found.params)


def test_every_option_that_takes_a_number_takes_only_finite_ones():
    numbers = [(name, each) for name, each in options() if isinstance(each.type, click.types.FloatParamType)]
    assert len(numbers) >= 4
    for name, each in numbers:
        assert isinstance(each.type, FiniteRange), f"{name} {each.name}"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_no_number_is_refused_as_usage(text):
    error = refused("exec", "--profile", "world4", "-n", "4", f"--rate-scale={text}", "--", "true")
    assert error.splitlines()[-1].startswith("Error: Invalid value for '--rate-scale': ")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "place",
    [
        "[algorithms.localsgd]\nouter_lr = {}",
        "[algorithms.ssgd]\n[sweep]\nrtt_scale = [1.0, {}]",
        "[algorithms.ssgd]\n[[gate.require]]\nmetric = 'scalability'\nwhere = {{ workers = {} }}",
    ],
)
def test_no_number_in_a_file_is_infinite_or_none(place, number):
    text = f"schema = 1\nname = 't'\nworkload = {{ name = 'digits-cnn' }}\n{place.format(number)}\n"
    with pytest.raises(SpecError, match="expected a finite number"):
        Spec.from_toml(text, "t.toml")
    assert flaw({"a": [1.0, math.inf]}) == "a.1: expected a finite number, got inf"


# ---------------------------------------------------------------- secrets


ARGUMENTS = ["wanbench", "exec", "--env", "TOKEN=hunter22", "--env=KEY=p w=1", "--env", "HOME", "--env=PATH", "--env",
             "A=", "--env", "N=1", "--", "train", "--env", "EPOCHS=10", "--n=1"]  # fmt: skip


def broken() -> None:
    raise ValueError("hunter22: cannot be used with KEY=p w=1")


def test_values_of_variables_are_masked_in_what_is_stored_and_told(monkeypatch):
    monkeypatch.setattr(sys, "argv", ARGUMENTS)
    stored = manifest([])["argv"]
    assert stored[2:12] == ["--env", "TOKEN=***", "--env=KEY=***", "--env", "HOME", "--env=PATH", "--env", "A=",
                            "--env", "N=***"]  # fmt: skip
    assert stored[12:] == ARGUMENTS[12:]
    monkeypatch.setenv("WANBENCH_TRACEBACK", "1")
    monkeypatch.setattr("wanbench.harness.run.doctor.examine", broken)
    told = refused("doctor", code=70)
    assert "hunter22" not in told
    assert "p w=1" not in told
    assert told.count("***: cannot be used with KEY=***") == 3
    assert masked("1 of N=12") == "1 of N=***2"


def test_a_variable_that_cannot_be_one_is_refused_without_its_value():
    error = refused("exec", "--profile", "world4", "-n", "4", "--env", "=hunter22", "--", "true")
    assert "--env '=***': expected NAME=VALUE" in error
    assert "hunter22" not in error
