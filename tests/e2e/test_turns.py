"""Two `exec` that begin at once, with one name and one folder: one after the other, each with its own results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wanbench.harness.errors import EXIT_INTERRUPTED
from wanbench.harness.run.host import SWITCH

pytestmark = pytest.mark.usefixtures("turns_of_nobody_else")

EXEC = ["exec", "--profile", "uniform", "--rtt", "1ms", "-n", "2", "--name", "same", "--", "sh", "-c"]
WAITING = "wanbench: waiting: another wanbench emulates on this host; each would disturb the other\n"


@pytest.fixture
def begun(tmp_path):
    """Starts `wanbench exec` with a line for a shell."""
    started = []

    def start(line: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).parent / "wanbench"), *EXEC, line]
        environment = {key: value for key, value in os.environ.items() if key != SWITCH}
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate()


def test_they_emulate_one_after_the_other_and_none_writes_into_the_other_ones_folder(begun, tmp_path):
    lines = [f"date +%s%N >> {tmp_path}/{name}; sleep 4; date +%s%N >> {tmp_path}/{name}" for name in "ab"]
    both = [begun(line) for line in lines]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert WAITING in said[0] + said[1]
    spans = sorted(sorted(map(int, (tmp_path / name).read_text().split())) for name in "ab")
    assert spans[0][-1] < spans[1][0]
    folders = sorted((tmp_path / "results").iterdir())
    assert len(folders) == 2
    argued = {json.loads((folder / "manifest.json").read_text())["argv"][-1] for folder in folders}
    assert argued == set(lines)
    rows = [json.loads(file.read_text()) for file in tmp_path.glob("results/*/cells/*/rep-0*/*.json")]
    assert [row.get("row", row)["turn"] for row in rows if "row" in row or "turn" in row] == ["alone", "alone"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_while_it_waits_ends_with_130_and_starts_nothing(begun, tmp_path, number):
    first = begun(f"echo > {tmp_path}/first; sleep 1000")
    while not (tmp_path / "first").exists():
        assert first.poll() is None
    second = begun(f"echo > {tmp_path}/second")
    while second.stderr.readline() != WAITING:
        assert second.poll() is None
    second.send_signal(number)
    _, said = second.communicate(timeout=60)
    assert (second.returncode, said) == (
        EXIT_INTERRUPTED,
        "wanbench: interrupted while waiting for the host; the same command continues\n",
    )
    assert not (tmp_path / "second").exists()
