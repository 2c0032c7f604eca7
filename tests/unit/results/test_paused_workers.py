"""Two workers that stop at random and go on, among repetitions that fail: who has a repetition decides what is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pausing_worker
import pytest
from on_relay import planned

from wanbench.harness.errors import EXIT_FAILED, EXIT_OK
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import SWITCH
from wanbench.harness.spec.experiment import Spec

BEAT_S = 0.05  # so a worker that stands for 0.15 s is taken for dead
MOST_PAUSE_S = 0.8
TICK_S = 0.02  # of the times of files, and more
SPEC = """\
schema = 1
name = "shared"
[workload]
params = 1000
step_time = "10ms"
[algorithms]
ssgd = {}
[sweep]
workers = [2]
rtt = ["10ms", "20ms"]
[run]
testbed = "netns"
repeats = 2
"""


def prepared(out: Path, runs: int) -> list[RunFolder]:
    """Runs of six repetitions each, two of which are of one worker."""
    plan = planned(Spec.from_toml(SPEC, "shared.toml"), "shared.toml")
    folders = [RunFolder(out / f"run-{number:03d}") for number in range(runs)]
    for folder in folders:
        folder.prepare(SPEC, plan.to_json(), {"schema": 1})
    return folders


def paused(workers: list[subprocess.Popen[bytes]], pauses: int, random: Random) -> Iterator[None]:
    """Stop workers and let them go on, at random, and yield in between; the last pauses end with the workers."""
    goes_on_s: dict[int, float] = {}
    while any(worker.poll() is None for worker in workers):
        for worker in workers:
            if worker.poll() is not None:
                goes_on_s.pop(worker.pid, None)
            elif worker.pid in goes_on_s:
                if time.monotonic() >= goes_on_s[worker.pid]:
                    worker.send_signal(signal.SIGCONT)
                    del goes_on_s[worker.pid]
            elif pauses and random.random() < 0.08:
                worker.send_signal(signal.SIGSTOP)
                goes_on_s[worker.pid] = time.monotonic() + random.uniform(0.1, MOST_PAUSE_S)
                pauses -= 1
        yield
        time.sleep(0.01)
    assert pauses == 0


def lines(out: Path, name: str) -> Iterator[list[Any]]:
    """The lines of a file of each worker."""
    for file in sorted(out.glob(f"{name}-*.jsonl")):
        yield [json.loads(line) for line in file.read_text().splitlines()]


def kept(folder: RunFolder) -> dict[int, float]:
    """When each repetition was kept, by its token: the time at which its folder was renamed."""
    found = {}
    for file in [*folder.path.glob("cells/*/rep-*/result.json"), *folder.path.glob("cells/*/rep-*/error.json")]:
        data = json.loads(file.read_text())
        row = data.get("row", data)
        found[int(row["reason"] or row["step_time_s"])] = file.parent.stat().st_ctime
    return found


def wrong(attempts: list[dict[str, Any]], when: dict[int, float]) -> Iterator[str]:
    """What must not be among the attempts at one repetition.

    Who claims it last has it from then on. So what another one measures is kept before that, or not at all; and
    something is lost only to who claims later.
    """
    for one in attempts:
        kept_s, claimed_s = when.get(one["token"]), one["claimed"]
        later_s = [other["claimed"] for other in attempts if (other["claimed"] or 0) > (claimed_s or 0)]
        if kept_s is None and claimed_s is not None and not later_s:
            yield f"lost: {one}"
        if kept_s is not None and (claimed_s is None or any(kept_s > each + TICK_S for each in later_s)):
            yield f"kept although another worker had it: {one}"
    if sum(one["outcome"] == "ok" for one in attempts if one["token"] in when) > 1:
        yield f"two valid results: {attempts}"


@pytest.mark.parametrize(
    ("seed", "pauses", "runs", "late"), [(1, 12, 4, 0), pytest.param(2, 100, 36, 5, marks=pytest.mark.long)]
)
def test_no_valid_result_is_lost_or_replaced_whoever_stops_and_goes_on(tmp_path, seed, pauses, runs, late):
    folders = prepared(tmp_path, runs)
    script = [sys.executable, pausing_worker.__file__]
    errors = tmp_path / "errors"
    with errors.open("wb") as log:
        workers = [
            subprocess.Popen(
                [*script, str(number), str(seed), str(BEAT_S), *(str(folder.path) for folder in folders)],
                env=os.environ | {SWITCH: "off"},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
            for number in range(2)
        ]
    seen: dict[Path, bytes] = {}
    try:
        while len([*tmp_path.glob("started-*")]) < len(workers):
            assert all(worker.poll() is None for worker in workers), errors.read_text()
            time.sleep(0.01)
        for _ in paused(workers, pauses, Random(seed)):
            for file in tmp_path.glob("run-*/cells/*/rep-?/result.json"):
                seen.setdefault(file, file.read_bytes())
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()

    attempts: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for attempt in chain.from_iterable(lines(tmp_path, "attempts")):
        attempts[attempt["run"], attempt["cell"], attempt["rep"]].append(attempt)
    when = {token: time_s for folder in folders for token, time_s in kept(folder).items()}
    valid = {folder.name: sum(row["status"] == "ok" for row in folder.rows()) for folder in folders}
    assert [text for group in attempts.values() for text in wrong(group, when)] == []
    assert {file: file.read_bytes() for file in seen} == seen  # none was replaced
    assert sum(map(len, attempts.values())) - len(when) >= late
    assert [*lines(tmp_path, "codes")] == 2 * [[EXIT_OK if valid[f.name] == 6 else EXIT_FAILED for f in folders]]
    assert all(len(folder.rows()) == 6 for folder in folders)
    left = [path for folder in folders for name in ("claims", "cells/*/*.part") for path in folder.path.glob(name)]
    assert left == []
