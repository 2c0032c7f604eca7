"""Two `exec` that begin at once, with one name and one folder: one after the other, each with its own results."""

from __future__ import annotations

import json
import signal

import pytest

from wanbench.harness.errors import EXIT_INTERRUPTED
from wanbench.harness.run.host import SWITCH

pytestmark = pytest.mark.usefixtures("turns_of_nobody_else")

EXEC = ["exec", "--profile", "uniform", "--rtt", "1ms", "-n", "2", "--name", "same", "--", "sh", "-c"]
WAITING = "wanbench: waiting: another wanbench emulates on this host; each would disturb the other\n"


@pytest.fixture
def begun(bench, monkeypatch):
    """Starts `wanbench exec` with a line for a shell."""
    monkeypatch.delenv(SWITCH)
    return lambda line: bench.start(*EXEC, line)


def test_they_emulate_one_after_the_other_and_none_writes_into_the_other_ones_folder(begun, tmp_path):
    lines = [f"date +%s%N >> {tmp_path}/{name}; sleep 4; date +%s%N >> {tmp_path}/{name}" for name in "ab"]
    both = [begun(line) for line in lines]
    ended = [command.wait(120) for command in both]
    assert [result.code for result in ended] == [0, 0], ended
    assert WAITING in ended[0].err + ended[1].err
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
    first.until((tmp_path / "first").exists)
    second = begun(f"echo > {tmp_path}/second")
    second.until(lambda: WAITING in second.log.read_text())
    second.process.send_signal(number)
    result = second.wait(60)
    assert result.code == EXIT_INTERRUPTED
    assert result.err.endswith(
        f"{WAITING}wanbench: interrupted while waiting for the host; the same command continues\n"
    )
    assert not (tmp_path / "second").exists()
