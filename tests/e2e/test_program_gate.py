"""The gate of a program, on the relay: what multiplies its messages or its steps' time is red."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cli_session import patiently

EXAMPLES = Path(__file__).parents[2] / "examples"
BACKWARD = "    loss.backward()\n"
LINEAR = "torch.nn.Linear(64, 10)"
WIDE = "torch.nn.Linear(64, 1000)"


@pytest.fixture
def program(shared_bench):
    """Return the file of the example program, beside its spec."""
    path = shared_bench.folder / "train.py"
    path.write_text((EXAMPLES / "train.py").read_text().replace(LINEAR, WIDE))
    spec = (EXAMPLES / "ci" / "program.toml").read_text()
    shared_bench.spec(spec.replace('"python"', json.dumps(sys.executable)), "program")
    return path


@pytest.fixture
def accepted(shared_bench, program):
    """Return the file of the program, whose baseline was accepted."""
    if not (shared_bench.folder / "b.json").exists():
        accepted = check(shared_bench, "--accept")
        assert accepted.code == 0, accepted.out + accepted.err
    return program


def check(bench, *arguments):
    """Check, again while the host is too busy for a valid repetition."""
    return patiently(
        lambda: bench.run("check", "program.toml", "--baseline", "b.json", *arguments),
        lambda result: result.code == 4 and " invalid: " in result.out,
    )


@pytest.mark.long  # that the program is judged by what it sends is tested each time, and so is equality, simulated
@pytest.mark.usefixtures("accepted")
def test_the_same_program_is_green(shared_bench):
    same = check(shared_bench)
    assert same.code == 0, same.out + same.err
    assert same.out.splitlines()[-2:] == [
        "2 comparisons and 0 requirements judged; your code: train.py",
        "2 unchanged.",
    ]


def test_a_second_all_reduce_is_red(shared_bench, accepted):
    accepted.write_text(accepted.read_text().replace(BACKWARD, f"{BACKWARD}    dist.all_reduce(torch.ones(1))\n"))
    worse = check(shared_bench)
    assert worse.code == 1, worse.out + worse.err
    assert "messages_sent" in worse.out


@pytest.mark.long  # a second message is found each time
def test_a_doubled_payload_is_red(shared_bench, accepted):
    accepted.write_text(accepted.read_text().replace(WIDE, "torch.nn.Linear(64, 2000)"))
    worse = check(shared_bench)
    assert worse.code == 1, worse.out + worse.err
    assert "wire_bytes_per_step" in worse.out


def test_a_program_that_raises_is_red(shared_bench, accepted):
    accepted.write_text("raise RuntimeError('it is gone')")
    assert check(shared_bench).code == 4


@pytest.mark.long  # a comparison of simulated step times is tested each time
@pytest.mark.timed
def test_a_sleep_is_red_where_step_times_are_compared(shared_bench, program):
    for name, code in (("quick", program.read_text()), ("slow", program.read_text().replace(
            BACKWARD, f"{BACKWARD}    time.sleep(0.2)\n"))):  # fmt: skip
        program.write_text(code)
        run = ("run", "program.toml", "--set", "run.repeats=2", "--no-figures", "--out", name)
        measured = patiently(lambda run=run: shared_bench.run(*run), lambda result: result.code == 4)
        assert measured.code == 0, measured.err
    compared = ("--base", "quick/program", "--head", "slow/program", "--noise", "none.json")
    worse = shared_bench.run("check", "program.toml", *compared)
    assert worse.code == 1, worse.out + worse.err
    shutil.rmtree(shared_bench.folder / "slow")
