"""The changes of a timeline in `results`: due, actual, delay."""

from __future__ import annotations

from wanbench.harness.show.tables import timeline_table


def row(*events, timeline="worker 3: cut off at 6 s for 5 s", status="ok"):
    return {"timeline": timeline, "status": status, "events": [
        {"what": what, "asked_s": due, "actual_s": actual, "at_ns": 0} for what, due, actual in events
    ]}  # fmt: skip


def test_changes_are_reported_over_all_valid_repetitions():
    rows = [
        row(("worker 3: cut off", 6.0, 6.001), ("worker 3: healed", 11.0, 11.002)),
        row(("worker 3: cut off", 6.0, 6.004), ("worker 3: healed", 11.0, None)),
        row(("worker 3: cut off", 6.0, 9.0), status="invalid"),
    ]
    lines = [line.split() for line in timeline_table(rows).splitlines()]
    assert lines[0] == ["timeline:", "worker", "3:", "cut", "off", "at", "6", "s", "for", "5", "s"]
    assert lines[-2] == ["worker", "3:", "cut", "off", "6.000", "6.001..6.004", "4.0", "2", "of", "2"]
    assert lines[-1] == ["worker", "3:", "healed", "11.000", "11.002", "2.0", "1", "of", "2"]


def test_a_change_that_did_not_happen_is_shown_without_a_reason():
    """Training may have ended before the change, or a worker may have made no step in that time."""
    assert timeline_table([row(("worker 3: killed", 6.0, None))]).splitlines()[-1].split()[-5:] == [
        "6.000",
        "never",
        "0",
        "of",
        "1",
    ]


def test_a_network_that_does_not_change_has_no_table():
    assert timeline_table([row(timeline=None)]) == ""
