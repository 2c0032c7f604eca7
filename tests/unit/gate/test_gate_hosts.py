"""The gate refuses hosts that are not alike, because it could not tell a slower host from slower code."""

from __future__ import annotations

import json

import pytest
from command_line import as_it_was, wanbench  # noqa: F401
from gate_rows import alone, row
from small_spec import GOOD

from wanbench.harness.gate.check import Work
from wanbench.harness.gate.measured import Sides, unlike_hosts
from wanbench.harness.results.columns import empty
from wanbench.harness.results.row import describe
from wanbench.harness.spec.tables import GateTable

CHECK = ("check", "t.toml", "--allow-no-code", "--base", "old", "--head", "new", "--noise", "none.json")
FAST, SLOW = "gpu7-3f9a1c", "gpu8-77aa01"


def side(hosts, reps=5):
    """Return the rows of a side: each host with its one-worker step time, and the other repetitions in turn."""
    rows = [
        {**alone(rep, testbed="netns", host=host), "step_time_s": step_s, "base_key": "one-worker 1 None"}
        for host, step_s in hosts.items() for rep in range(reps)
    ]  # fmt: skip
    for rep in range(reps):
        host = list(hosts)[rep % len(hosts)]
        step_s = hosts[host] / 0.6 * (1 + 0.002 * (rep % 3))
        rows.append({**row("ssgd", rep, rtt="10ms", workers=2, testbed="netns", host=host), "step_time_s": step_s,
                     "base_key": "one-worker 1 None"})  # fmt: skip
    return rows


DIFFER = f"{SLOW} and {FAST} differ by 5.0 % in the step time of one worker; the limit is 3 %"


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ({FAST: 0.3}, {FAST: 0.3, SLOW: 0.315}),
        ({FAST: 0.3, SLOW: 0.315}, {FAST: 0.3}),
        ({FAST: 0.3}, {SLOW: 0.315}),
    ],
    ids=["the head", "the base", "one each"],
)
def test_a_mixture_of_hosts_that_differ_is_refused(base, head):
    assert unlike_hosts(side(base), side(head)) == DIFFER


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ({FAST: 0.3, SLOW: 0.303}, {FAST: 0.3, SLOW: 0.303}),
        ({FAST: 0.3}, {SLOW: 0.303}),
        ({FAST: 0.3}, {FAST: 0.315}),
        ({None: 0.3}, {FAST: 0.315}),
    ],
    ids=["alike", "alike, one each", "slower code on one host", "a base that recorded no host"],
)
def test_other_changes_are_left_to_the_gate(base, head):
    assert unlike_hosts(side(base), side(head)) is None


def test_simulated_rows_are_compared_wherever_they_were_computed():
    rows = [[{**one, "testbed": "virtual"} for one in side(hosts)] for hosts in ({FAST: 0.3}, {SLOW: 0.315})]
    assert unlike_hosts(*rows) is None


def test_a_repetition_of_one_worker_that_both_hosts_measured_counts_once():
    both = Sides(side({FAST: 0.3, SLOW: 0.306}), side({FAST: 0.3, SLOW: 0.306}), GateTable())
    assert [base_s for base_s, _ in both.pairs("one-worker w1").values()] == [pytest.approx(0.303)] * 5


# ---------------------------------------------------------------- on the command line


def write(path, rows):
    path.mkdir()
    (path / "rows.jsonl").write_text("".join(json.dumps({**empty(), "code": "c", **one}) + "\n" for one in rows))
    (path / "manifest.json").write_text(json.dumps({"cpu": "A", "kernel": "6.1", "versions": {"torch": "2.13"}}))


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "t.toml").write_text(GOOD.replace("[sweep]", '[run]\ntestbed = "virtual"\nrepeats = 1\n\n[sweep]'))
    return tmp_path


def test_check_refuses_hosts_that_differ_in_one_line_with_the_exit_code_of_inconclusive(spec):
    write(spec / "old", side({FAST: 0.3}))
    write(spec / "new", side({FAST: 0.3, SLOW: 0.315}))
    result = wanbench(*CHECK)
    assert result.exit_code == 5
    assert [line.split(None, 3) for line in result.stdout.splitlines() if "differ" in line] == [
        ["hosts", "not", "comparable", DIFFER]
    ]
    assert wanbench(*CHECK, "--inconclusive", "pass").exit_code == 5


def test_check_compares_hosts_that_are_alike(spec):
    write(spec / "old", side({FAST: 0.3, SLOW: 0.303}))
    write(spec / "new", side({FAST: 0.3, SLOW: 0.303}))
    result = wanbench(*CHECK)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "3 unchanged.")


@pytest.mark.parametrize(("testbed", "known"), [("netns", {"hosts": [FAST, SLOW]}), ("virtual", {})])
def test_a_baseline_records_the_hosts_of_emulated_cells_and_can_be_compared_on_others(
    spec, monkeypatch, testbed, known
):
    values = {"status": "ok", "steps": 20, "payload_bytes": 8, "messages_sent": 1, "step_time_s": 0.5, "scalability": 1}

    def check(hosts, *accept):
        monkeypatch.setattr(
            Work,
            "measured",
            lambda work: [{**describe(cell, 0), **values, "host": host} for cell in work.cells for host in hosts],
        )
        return wanbench("check", "t.toml", "--allow-no-code", "--testbed", testbed, "--baseline", "b.json", *accept)

    assert check([SLOW, FAST], "--accept").exit_code == 0
    cells = json.loads((spec / "b.json").read_text())["cells"].values()
    assert [{key: cell[key] for key in cell if key == "hosts"} for cell in cells] == [known, known]
    assert check(["another"]).exit_code == 0
