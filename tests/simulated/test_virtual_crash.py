"""A simulated run that is killed many times loses nothing, and ends with the same result as an undisturbed run."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest
from cli_session import by_numbers
from warm import WANBENCH, Warm

ALGORITHMS = "ssgd = {}\ndelayed = { delay = 2 }\nsparse = { period = 2 }\ndts = { delay = 4, period = 2 }"
REPS = 60  # twelve for each of five cells, one of them the one-worker cell
SPEC = by_numbers("often", ALGORITHMS, run='testbed = "virtual"').replace("repeats = 1", "repeats = 12")
KILLS = 40
KILLS_AT_THE_END = 10
SEED = 20
RUN = ("run", "spec.toml", "--out")
JOURNALS = ("manifest.json", "digests.jsonl")  # which say what happened when


class Commands:
    """Run commands one after the other in a folder, with their output in `log`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"

    def start(self, *arguments: str) -> None:
        with self.log.open("a") as log:
            self.process = Warm(WANBENCH, arguments, folder=self.folder, out=log.fileno(), err=log.fileno())

    def kill(self) -> int:
        """Send SIGKILL, and return how the command ended: -9, or its exit code if it was faster."""
        self.process.kill()
        return self.process.wait()

    def wait(self) -> int:
        return self.process.wait()


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("often")
    (folder / "spec.toml").write_text(SPEC)
    return Commands(folder), folder


def files(run: Path) -> dict[str, bytes]:
    """Return all files of a run, except those of its workers, which contain times and process ids."""
    kept = {path.relative_to(run): path for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    return {str(name): path.read_bytes() for name, path in kept.items() if name.parts[0] != "workers"}


def _is_json(line: str) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


def finished(run: Path) -> set[Path]:
    return set(run.glob("cells/*/rep-[0-9]*/result.json")) - set(run.glob("cells/*/*.*/result.json"))


def until(condition, commands, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, commands.log.read_text()
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(warm):
    """Return (files, seconds of measuring, seconds from there to the end) of a run that was not killed."""
    commands, folder = warm
    commands.start(*RUN, "undisturbed")
    began = time.monotonic()
    until(lambda: len(finished(folder / "undisturbed/often")) == REPS, commands)
    measured = time.monotonic()
    assert commands.wait() == 0, commands.log.read_text()
    found = files(folder / "undisturbed/often")
    return found, measured - began, time.monotonic() - measured


@pytest.mark.long  # runs on namespaces are killed each time
def test_a_run_killed_at_random_moments_loses_no_finished_repetition(warm, undisturbed):
    (commands, folder), (expected, measuring_s, _) = warm, undisturbed
    out = "killed"
    run, rng = folder / out / "often", random.Random(SEED)
    moments = [(done, rng.uniform(0, 2 * measuring_s / REPS)) for done in sorted(rng.sample(range(REPS - 5), KILLS))]
    kept: dict[Path, tuple[int, bytes]] = {}
    halfway = 0
    for done, extra_s in moments:
        commands.start(*RUN, out, "--no-figures")
        until(lambda: len(finished(run)) > done, commands)  # noqa: B023
        time.sleep(extra_s)
        assert commands.kill() == -9, f"seed {SEED}: {moments}: {commands.log.read_text()}"
        now = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in finished(run)}
        assert {path: now.get(path) for path in kept} == kept, f"seed {SEED}: {moments}"
        assert all(json.loads(row)["status"] == "ok" for _, row in now.values())
        halfway += len(list(run.glob("cells/*/rep-*.part")))
        kept = now
    assert halfway >= KILLS / 4  # kills only between two repetitions would test little
    assert KILLS <= len(kept) < REPS
    commands.start(*RUN, out)
    assert commands.wait() == 0
    assert f"{REPS} reps, {REPS - len(kept)} to do" in commands.log.read_text()
    after = files(run)
    assert after.keys() == expected.keys()
    differ = [name for name in after if after[name] != expected[name] and name not in JOURNALS]
    assert differ == [], f"seed {SEED}: {moments}"


@pytest.mark.long  # other crashes are repaired each time
def test_the_same_command_repairs_a_run_that_was_killed_while_it_wrote_rows_and_figures(warm, undisturbed):
    (commands, folder), (expected, _, deriving_s) = warm, undisturbed
    run, rng = folder / "undisturbed" / "often", random.Random(SEED)
    # The first is early enough even if the host is faster now than when it was measured.
    moments = sorted([deriving_s / 5, *(rng.uniform(0, deriving_s) for _ in range(KILLS_AT_THE_END - 1))])
    derived = [name for name in expected if re.match(r"figures/|results\.parquet", name)]
    assert len(derived) > 10
    unfinished = 0
    for moment_s in moments:
        shutil.rmtree(run / "figures")
        (run / "results.parquet").unlink()
        commands.start(*RUN, "undisturbed")
        time.sleep(moment_s)
        assert commands.kill() in (-9, 0)
        now = files(run)
        half = [name for name in now if name in derived and now[name] != expected[name]]
        assert half == [], f"seed {SEED}: {moments}"
        if "results.parquet" in now:
            assert len(pd.read_parquet(run / "results.parquet")) == REPS
        unfinished += len(now.keys() & set(derived)) < len(derived)
        (run / "figures").mkdir(exist_ok=True)
        (run / "results.parquet").touch()
    assert unfinished > 0
    commands.start(*RUN, "undisturbed")
    assert commands.wait() == 0, commands.log.read_text()
    after = files(run)
    assert after.keys() == expected.keys()
    assert [name for name in derived if after[name] != expected[name]] == []


def test_after_any_other_crash_the_same_command_completes_the_result(warm, undisturbed):
    (commands, folder), (expected, _, _) = warm, undisturbed
    run = folder / "stale" / "often"
    shutil.copytree(folder / "undisturbed" / "often", run)
    cells = sorted((run / "cells").iterdir())
    (cells[0] / "rep-0" / "result.json").write_bytes(b'{"status": "ok", "step_ti')  # the disk was full
    (cells[0] / "rep-1").rename(cells[0] / "rep-1.part")
    (cells[1] / "rep-0" / "result.json").unlink()
    (cells[1] / "rep-1").rename(cells[1] / "rep-1.failed-1")  # without its error.json
    shutil.rmtree(cells[2])
    cells[2].mkdir()
    (cells[3] / ".cell.json.4711.part").write_text("{")
    (run / ".manifest.json.4711.part").write_text("{")
    (run / "manifest.json").write_text('{"schema"')
    (run / "spec.resolved.json").write_text("")
    (run / "results.parquet").write_bytes(b"PAR1")
    (run / "figures" / ".step-time.svg.part").write_text("<svg")
    (run / ".lock").write_text("4711")
    with (run / "digests.jsonl").open("a") as journal:
        journal.write('{"file": 1')
    commands.start(*RUN, "stale", "--no-figures")
    assert commands.wait() == 0, commands.log.read_text()
    assert f"{REPS} reps, {REPS // 5 + 4} to do" in commands.log.read_text()
    after = files(run)
    places = [cells[0] / "rep-0.damaged-1", cells[1] / "rep-0.damaged-1", cells[1] / "rep-1.failed-1"]
    kept = tuple(str(path.relative_to(run)) for path in places)
    assert {name for name in after if not name.startswith(kept)} == set(expected)
    assert [name for name in expected if after[name] != expected[name] and name not in JOURNALS] == []
    assert json.loads(after["manifest.json"])["schema"] == 1
    journals = [journal.read_text().splitlines() for journal in run.rglob("*.jsonl")]
    assert [line for journal in journals for line in journal if not _is_json(line)] == ['{"file": 1']
