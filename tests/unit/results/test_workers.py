"""A worker is dead if its process is gone, or if its counter stands still by the watcher's own clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from wanbench.harness.results import claims, digests
from wanbench.harness.results.claims import BEAT_S, MISSED, Watch, Worker


class Clock:
    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def worker(tmp_path):
    made = Worker(tmp_path)
    yield made
    made.close()


def of_another_host(run, name="far-1", beat="1"):
    """A worker whose process cannot be seen from here."""
    folder = run / "workers" / name
    folder.mkdir(parents=True)
    (folder / "owner.json").write_text(json.dumps({"pid": 1, "started": 1, "seen_from": "another kernel"}))
    (folder / "beat").write_text(beat)
    return folder


def test_a_worker_counts_and_ends_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    worker = Worker(tmp_path)
    beat = worker.folder / "beat"
    first = beat.read_text()
    while beat.read_text() == first:
        pass
    watch = Watch(tmp_path)
    assert watch.candidates() == [worker.name]
    worker.close()
    assert not beat.exists()
    assert watch.is_dead(worker.name)
    assert watch.candidates() == []


def test_a_counter_that_stands_still_for_three_beats_of_the_watchers_clock_is_dead_and_no_sooner(tmp_path, clock):
    folder = of_another_host(tmp_path)
    watch = Watch(tmp_path, now=clock)
    clock.s = 1000.0  # whatever the time was when it last counted
    assert not watch.is_dead("far-1")
    clock.s += MISSED * BEAT_S - 0.1
    assert not watch.is_dead("far-1")
    clock.s += 0.1
    assert watch.is_dead("far-1")
    (folder / "beat").write_text("2")  # it was paused
    assert not watch.is_dead("far-1")


def test_a_dead_process_of_this_host_needs_no_waiting(tmp_path):
    code = (
        "import os, pathlib; from wanbench.harness.results.claims import Worker\n"
        f"print(Worker(pathlib.Path({str(tmp_path)!r})).name, flush=True); os.kill(os.getpid(), 9)"
    )
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    assert (tmp_path / "workers" / name / "beat").exists()
    watch = Watch(tmp_path)
    assert watch.candidates() == []
    assert watch.is_dead(name)


def test_the_living_are_told_from_the_dead_by_their_next_beat(tmp_path, worker, monkeypatch):
    of_another_host(tmp_path)
    monkeypatch.setattr(claims, "BEAT_S", 0.1)
    monkeypatch.setattr(claims, "MISSED", 200)  # on a busy host its beat can be late
    lively = Worker(tmp_path)
    try:
        assert Watch(tmp_path).living() == [lively.name]
    finally:
        lively.close()
    worker.close()
    monkeypatch.setattr(claims, "MISSED", MISSED)
    assert Watch(tmp_path).living() == []  # the one of another host does not count


def test_one_that_was_buried_lives_again_with_its_next_beat(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    worker = Worker(tmp_path)
    try:
        watch = Watch(tmp_path)
        watch.bury(worker.name)
        while watch.is_dead(worker.name):
            pass
    finally:
        worker.close()


def test_workers_of_one_process_have_different_names_that_say_where_they_run(tmp_path, worker):
    other = Worker(tmp_path)
    other.close()
    assert other.name != worker.name
    assert worker.name.startswith(f"{os.uname().nodename.partition('.')[0]}-{os.getpid()}-")


def test_journals_are_that_of_the_folder_and_those_of_its_workers(tmp_path, worker):
    (tmp_path / "events.jsonl").write_text("")
    (worker.folder / "events.jsonl").write_text("")
    assert [*digests.journals(tmp_path, "events.jsonl")] == [tmp_path / "events.jsonl", worker.folder / "events.jsonl"]
    assert [*digests.journals(tmp_path, digests.WORKERS)] == []
