"""Hosts are part of a measurement: each has a name, and is compared with itself."""

from __future__ import annotations

import pytest
import synthetic_rows
from small_spec import GOOD, cells
from two_hosts import FAST, SLOW, shared, without

from wanbench.harness.results.goodput import set_goodput
from wanbench.harness.results.hosts import Hosts, hosts_of
from wanbench.harness.results.scalability import rescale
from wanbench.harness.run.manifest import host_facts, host_name


def test_a_host_is_its_name_and_a_digest_of_its_machine_id():
    assert host_name("gpu7", "0123456789abcdef0123456789abcdef") == "gpu7-28e4fd"


def test_the_machine_id_itself_is_not_published():
    assert "012345" not in host_name("gpu7", "0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("node", "machine_id"), [("gpu8", "a" * 32), ("gpu7", "b" * 32), ("gpu7.site", "a" * 32), ("gpu7", None)]
)
def test_another_name_or_machine_is_another_host(node, machine_id):
    assert host_name(node, machine_id) != host_name("gpu7", "a" * 32)


def test_a_name_can_be_that_of_a_file():
    assert host_name("my host/../x", None) == "my-host-..-x"


def test_emulated_rows_name_their_host_and_simulated_ones_name_none():
    emulated, simulated = (cells(GOOD.replace("[sweep]", f'[run]\ntestbed = "{name}"\n\n[sweep]'))[0]
                           for name in ("netns", "virtual"))  # fmt: skip
    assert list(host_facts(emulated)) == ["host", "kernel", "cpu"]
    assert host_facts(emulated)["host"] is not None
    assert host_facts(simulated) == {}


# ---------------------------------------------------------------- each host is divided by its own one-worker cell


def of(rows, host):
    return [row for row in rows if row["host"] == host and row["workers"] > 1]


def test_each_host_is_divided_by_its_own_one_worker_cell():
    rows = shared(5.0)
    rescale(rows)
    step_s = synthetic_rows.STEP_S
    assert {row["calibration_s"] for row in of(rows, FAST)} == {step_s}
    assert {round(row["calibration_s"], 9) for row in of(rows, SLOW)} == {round(1.05 * step_s, 9)}
    assert all(row["scalability"] == pytest.approx(row["calibration_s"] / row["step_time_s"]) for row in rows)


def test_a_host_without_its_own_one_worker_repetition_has_no_scalability():
    rows = without(shared(0.0), SLOW)
    rescale(rows)
    assert {(row["calibration_s"], row["scalability"]) for row in of(rows, SLOW)} == {(None, None)}
    assert all(row["scalability"] for row in of(rows, FAST))


def test_simulated_rows_share_one_wherever_they_were_computed():
    rows = [{**row, "testbed": "virtual"} for row in without(shared(5.0), SLOW)]
    rescale(rows)
    assert {row["calibration_s"] for row in rows} == {synthetic_rows.STEP_S}


def test_rows_of_an_earlier_version_have_no_host_and_are_divided_as_before():
    rows = synthetic_rows.latency_sweep()
    before = [row["scalability"] for row in rows]
    rescale(rows)
    assert [row["scalability"] for row in rows] == before
    assert hosts_of(rows) == Hosts(("not recorded",))
    assert hosts_of(rows).problem is None


# ---------------------------------------------------------------- whether hosts are alike


@pytest.mark.parametrize(("apart_pct", "alike"), [(0.0, True), (1.0, True), (2.9, True), (3.1, False), (5.0, False)])
def test_hosts_are_alike_within_3_percent(apart_pct, alike):
    assert (hosts_of(shared(apart_pct)).problem is None) is alike


def test_hosts_that_differ_are_named_with_their_difference():
    assert hosts_of(shared(5.0)).problem == (
        "gpu8-77aa01 and gpu7-3f9a1c differ by 5.0 % in the step time of one worker; the limit is 3 %"
    )


def test_a_host_that_has_not_measured_one_worker_is_not_known_to_be_alike():
    assert hosts_of(without(shared(0.0), SLOW)).problem == (
        "gpu8-77aa01 has no one-worker repetition to be compared by"
    )


def test_hosts_are_compared_by_the_one_worker_cell_that_both_have_measured():
    first, other = shared(1.0), [
        {**row, "base_key": "other", "cell_key": "other" if row["workers"] == 1 else "x", "step_time_s": 9.0}
        for row in shared(0.0) if row["host"] == FAST
    ]  # fmt: skip
    assert hosts_of([*first, *other]).apart_pct == pytest.approx(1.0)


def test_rows_without_their_one_worker_cell_are_compared_by_what_they_were_divided_by():
    rows = shared(5.0)
    rescale(rows)
    assert hosts_of([row for row in rows if row["workers"] > 1]).apart_pct == pytest.approx(5.0)


def test_repetitions_that_are_not_valid_do_not_count():
    rows = shared(5.0)
    for row in rows:
        if row["host"] == SLOW:
            row["status"] = "invalid"
    assert hosts_of(rows) == Hosts((FAST,))


def test_simulated_rows_have_no_host():
    assert hosts_of([{**row, "testbed": "virtual"} for row in shared(5.0)]) == Hosts()


# ---------------------------------------------------------------- what is left where workers are lost


def losing(apart_pct):
    """Return a run in which FAST measured the cell without losses, and SLOW also the one with losses."""
    whole = synthetic_rows.latency_sweep(reps=2)
    rows = shared(apart_pct, [row for row in whole if row["workers"] == 1 or row["algorithm"] == "ssgd"])
    (lost,) = [row for row in rows if row["host"] == SLOW and row["workers"] > 1 and row["rtt_ms"] == 100.0]
    (kept,) = [row for row in rows if row["host"] == FAST and row["workers"] > 1 and row["rtt_ms"] == 100.0]
    lost |= {"cell_key": "lossy", "undisturbed_key": kept["cell_key"], "counted_steps": 40}
    set_goodput(rows)
    return lost["goodput"], 40 * kept["step_time_s"] / (4 * lost["step_time_s"] * 20)


def test_hosts_that_are_alike_share_the_cell_without_losses():
    found, expected = losing(1.0)
    assert found == pytest.approx(expected)


def test_a_host_that_differs_has_no_goodput_without_its_own():
    assert losing(5.0)[0] is None
