"""What was measured on an overloaded host is measured once more, never published, and refused by `verify`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand
from overloaded_host import overload, relay_stats

from wanbench.harness.run.room import Room
from wanbench.harness.spec.experiment import Spec

SPEC = """
schema = 1
name = "busy"

[workload]
params = 1000
tensors = 2
step_time = "20ms"

[network]
tcp = { congestion = "reno" }

[algorithms]
ssgd = {}
delayed = { delay = 4 }

[sweep]
workers = [2]
rtt = ["10ms"]

[run]
testbed = "netns"
emulator = "relay"
repeats = 3
"""
PUNCTUAL_MS, LATE_MS = 0.5, 30.0
# Called every 30 ms, the relay writes a packet up to 30 ms after it was due; nothing else happens meanwhile.
REASON = "packets were late by {late} ms and waited 30.0 ms to be read (p99), limit 2.0 ms, during 100.0 % of the time"


@pytest.fixture
def host(monkeypatch):
    """`host(turn_every_ms)`: how often the relay gets a processor, by algorithm and try."""
    return lambda turn_every_ms: overload(monkeypatch, turn_every_ms)


@pytest.fixture
def run():
    Path("busy.toml").write_text(SPEC)
    return lambda: wanbench("run", "busy.toml", "--no-figures", "--jobs", "1")


def rows():
    return json.loads(wanbench("results", "busy", "--format", "json").stdout)


def test_a_relay_that_is_called_in_time_is_not_late_and_one_that_is_called_late_is(monkeypatch):
    network = expand(Spec.from_toml(SPEC, "x.toml"), "x.toml")[-1].emulated_network
    punctual = relay_stats(network, PUNCTUAL_MS, monkeypatch)
    assert punctual.lateness_p99_ms <= PUNCTUAL_MS
    assert (punctual.read_lag_p99_ms, punctual.overdue_pct) == (PUNCTUAL_MS, 0.0)
    late = relay_stats(network, LATE_MS, monkeypatch)
    assert 25 < late.lateness_p99_ms <= LATE_MS
    assert (late.read_lag_p99_ms, late.overdue_pct) == (LATE_MS, pytest.approx(100.0))


def test_how_many_run_side_by_side_is_learned_from_every_repetition(host, run, monkeypatch):
    host(lambda kind, tries: LATE_MS if kind == "delayed" else PUNCTUAL_MS)
    learned = []
    monkeypatch.setattr(Room, "judged", lambda self, began_s, *, valid, strain=0.0: learned.append(valid))
    run()
    assert Counter(learned) == {True: 6, False: 6}  # of one worker and ssgd; of delayed, tried twice


def test_an_overloaded_repetition_is_measured_once_more_and_never_published(host, run):
    testbed = host(lambda kind, tries: LATE_MS if kind == "delayed" else PUNCTUAL_MS)
    result = run()
    assert result.exit_code == 4
    assert result.stdout == "results/busy\n"
    last = result.stderr.splitlines()[-1]
    assert last.startswith("wanbench: 3 repetitions have no valid result")
    assert "could not keep up: delayed-d4-w2-" in last
    assert Counter(testbed.measured) == {"local": 3, "ssgd": 3, "delayed": 6}
    assert testbed.measured[-3:] == ["delayed"] * 3  # alone, at the end
    by_status = {status: [row for row in rows() if row["status"] == status] for status in ("ok", "invalid")}
    assert {row["algorithm"] for row in by_status["ok"]} == {"one-worker", "ssgd"}
    assert {row["algorithm"] for row in by_status["invalid"]} == {"delayed-d4"}
    for row in by_status["invalid"]:
        lateness, pauses = row["reason"].split("; ")
        assert lateness == REASON.format(late="29.0")
        assert pauses.startswith("the relay did not run for 0.03 s, ")
    tries = sorted(path.name for path in Path("results/busy/cells").glob("delayed*/*") if path.is_dir())
    assert tries == [f"rep-{rep}.failed-{attempt}" for rep in range(3) for attempt in (1, 2)]
    assert result.stderr.count("invalid, will be measured again: packets were late") == 3
    assert result.stderr.count("INVALID: packets were late") == 3


def test_verify_refuses_what_was_measured_on_an_overloaded_host(host, run):
    host(lambda kind, tries: LATE_MS if kind == "delayed" else PUNCTUAL_MS)
    run()
    result = wanbench("verify", "busy")
    assert result.exit_code == 4
    (objection,) = json.loads(wanbench("verify", "busy", "--json").stdout)
    assert objection["rule"] == "complete"
    assert objection["text"].startswith("invalid: " + REASON.format(late="29.0") + "; the relay did not run")
    assert "REFUSED  complete    Every cell has a valid result" in result.stdout
    assert result.stderr == "wanbench: results/busy: 1 problem: do not publish yet\n"


def test_numbers_of_an_overloaded_repetition_change_no_figure_and_no_table(host, run):
    host(lambda kind, tries: LATE_MS if kind == "delayed" else PUNCTUAL_MS)
    run()

    def published():
        assert wanbench("figures", "busy", "--formats", "svg").exit_code == 0
        figures = {path.name: path.read_bytes() for path in Path("results/busy/figures").iterdir()}
        return figures, *(wanbench("results", "busy", "--format", form).stdout for form in ("table", "pivot", "md"))

    before = published()
    assert "invalid" in before[2]
    changed = 0
    for path in Path("results/busy/cells").glob("*/rep-*.failed-*/error.json"):
        error = json.loads(path.read_text())
        for name in ("step_time_s", "compute_s", "overhead_s"):
            error["row"][name] *= 7
        path.write_text(json.dumps(error))
        changed += 1
    assert changed == 6
    assert published() == before


def test_where_every_repetition_was_overloaded_nothing_can_be_drawn(host, run):
    host(lambda kind, tries: LATE_MS)
    assert run().exit_code == 4
    assert refused("figures", "busy") == (
        "wanbench: results/busy: no cell of more than one worker has a valid result yet; there is nothing to draw"
    )


def test_a_host_that_was_overloaded_once_is_measured_again_and_published(host, run):
    host(lambda kind, tries: LATE_MS if (kind, tries) == ("delayed", 1) else PUNCTUAL_MS)
    result = run()
    assert result.exit_code == 0, result.stderr
    assert {row["status"] for row in rows()} == {"ok"}
    tries = sorted(path.name for path in Path("results/busy/cells").glob("delayed*/*") if path.is_dir())
    assert tries == ["rep-0", "rep-0.failed-1", "rep-1", "rep-2"]
    verified = wanbench("verify", "busy")
    assert (verified.exit_code, verified.stderr) == (0, ""), verified.stdout
