"""The columns of a result: all of them, on every row; what was not measured is None."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.plan.cell import Cell
from wanbench.harness.results import row
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import one_worker_step_times, scalability
from wanbench.harness.spec.experiment import Spec

PROMISED = """
    run cell rep status reason testbed emulator collective channels workload payload_scale algorithm kind params workers
    profile rtt_ms rtt_max_ms rate_mbps loss_pct loss_burst jitter_ms mtu tcp seed steps step_time_s compute_s stall_s
    overhead_s scalability predicted_step_time_s payload_bytes wire_bytes messages_sent blocks_lost_pct final_loss
    accuracy time_to_target_s steps_to_target one_way_error_ms lateness_p99_ms overdue_pct
    host_cpu_pct image host turn kernel cpu calibration_s sources
"""

MEASURED = """
    run status reason steps step_time_s compute_s stall_s overhead_s scalability payload_bytes wire_bytes messages_sent
    blocks_lost_pct final_loss accuracy time_to_target_s steps_to_target one_way_error_ms lateness_p99_ms overdue_pct
    host_cpu_pct image host turn kernel cpu calibration_s sources
"""

OF_THE_NETWORK = """
    emulator collective channels profile rtt_ms rtt_max_ms rate_mbps loss_pct loss_burst jitter_ms mtu tcp
"""

TEXT = """
schema = 1
name = "t"
[workload]
name = "resnet50-v100"
payload_scale = 0.01
step_cv = 0.0
[network]
rtt = "100ms"
rate = "10Gbit"
loss = "0.1%"
loss_burst = 5
jitter = "1ms"
mtu = 1400
tcp = { congestion = "cubic" }
[comm]
collective = "gloo"
[algorithms]
dts = { delay = 4, period = 4 }
[sweep]
workers = [4]
[run]
seed = 7
"""


def cells(**changes) -> list[Cell]:
    return expand(Spec.from_toml(TEXT, "x.toml").override(changes), "x.toml")


@pytest.mark.parametrize("index", [0, 1], ids=["one worker", "four workers"])
def test_every_promised_column_is_on_every_row(index):
    assert set(PROMISED.split()) <= set(describe(cells()[index], 0))


@pytest.mark.parametrize("index", [0, 1], ids=["one worker", "four workers"])
def test_what_is_not_measured_yet_is_none_and_nothing_else_is_missing(index):
    row = describe(cells()[index], 0)
    assert {key for key in MEASURED.split() if row[key] is not None} == set()
    absent = {key for key in PROMISED.split() if row[key] is None} - set(MEASURED.split())
    assert absent == (set(OF_THE_NETWORK.split()) if index == 0 else {"predicted_step_time_s"})  # packets are lost


def test_a_row_says_what_was_configured():
    row = describe(cells()[1], 2)
    expected = {
        "rep": 2, "testbed": "netns", "emulator": "relay", "collective": "gloo", "channels": 1,
        "workload": "resnet50-v100", "payload_scale": 0.01, "algorithm": "dts-d4-p4", "kind": "dts",
        "params": {"delay": 4, "period": 4}, "workers": 4, "profile": "uniform", "rtt_ms": 100.0, "rtt_max_ms": 100.0,
        "loss_pct": 0.1, "loss_burst": 5.0, "jitter_ms": 1.0, "mtu": 1400, "tcp": "cubic", "seed": 9,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["rate_mbps"] == pytest.approx(100.0), "scaled with the payload, as it is emulated"
    assert row["predicted_step_time_s"] == cells()[1].predicted_step_time_s


@pytest.mark.parametrize("network", [{"profile": "world4"}, {"rtt": "1ms", "loss": "1%", "loss_burst": 0}])
def test_losses_that_are_independent_have_no_burst(network):
    assert describe(cells(network=network)[1], 0)["loss_burst"] is None


def test_a_sweep_of_loss_has_the_same_bursts_at_no_loss():
    """Otherwise the bursts would be a second axis."""
    found = [describe(cells(network={"rtt": "1ms", "loss": loss, "loss_burst": 5})[1], 0) for loss in ("0%", "1%")]
    assert [(row["loss_pct"], row["loss_burst"]) for row in found] == [(0.0, 5.0), (1.0, 5.0)]


def test_round_trips_of_a_named_profile_are_those_between_sites_that_hold_workers():
    cell = cells(network={"profile": "world4", "place": {"tokyo": 2, "oregon": 2}})[1]
    row, profile = describe(cell, 0), cell.profile
    assert row["rtt_ms"] == row["rtt_max_ms"] == profile.rtt("tokyo", "oregon").ms


def test_real_compute_has_no_prediction():
    real = cells(workload={"name": "digits-cnn", "step_time": "real"}, algorithms={"ssgd": {}})
    assert [describe(cell, 0)["predicted_step_time_s"] for cell in real] == [None, None]


# ---------------------------------------------------------------- scalability


def measured(workers: int, step_time_s: float | None, **fields) -> dict:
    base = {"run": "t", "status": "ok", "cell_key": f"w{workers}", "base_key": "w1"}
    return {**base, "workers": workers, "step_time_s": step_time_s, **fields}


ALONE = [measured(1, 0.30), measured(1, 0.31), measured(1, 0.50)]


def of(row: dict, rows: list[dict]) -> float | None:
    return scalability(row, one_worker_step_times(rows))


def test_scalability_is_t1_over_tn_with_the_median_of_the_one_worker_repetitions():
    assert of(measured(4, 0.62), ALONE) == pytest.approx(0.31 / 0.62)


def test_there_is_no_scalability_before_the_one_worker_cell_is_finished():
    assert of(measured(4, 0.62), [measured(4, 0.62)]) is None


@pytest.mark.parametrize("fields", [{"run": "u"}, {"cell_key": "w1-of-another-workload"}, {"status": "invalid"}])
def test_only_the_one_worker_cell_that_a_row_names_is_compared_with(fields):
    assert of(measured(4, 0.62), [measured(1, 0.3, **fields)]) is None


@pytest.mark.parametrize("fields", [{"status": "invalid"}, {"status": "failed", "step_time_s": None}])
def test_a_repetition_without_a_valid_step_time_has_no_scalability(fields):
    assert of({**measured(4, 0.62), **fields}, ALONE) is None


def test_invalid_one_worker_repetitions_do_not_count():
    assert one_worker_step_times([*ALONE, measured(1, 9.0, status="invalid")]) == {("t", "w1", None): 0.31}


def test_the_times_in_which_connections_waited_are_shares_of_their_sending_time_since_the_beginning():
    before = {"BusyUs": 1000, "WindowLimitedUs": 500, "BufferLimitedUs": 0, "WindowBytes": 9, "InFlightBytes": 9}
    after = {
        "BusyUs": 5000,
        "WindowLimitedUs": 1500,
        "BufferLimitedUs": 400,
        "WindowBytes": 3000,
        "InFlightBytes": 2000,
        "ToAPeer": 6,
    }
    quiet = {"BusyUs": 0, "WindowLimitedUs": 0, "BufferLimitedUs": 0, "WindowBytes": 0, "InFlightBytes": 0}
    expected = {"window_bytes": 3000, "window_limited_pct": 25.0, "buffer_limited_pct": 10.0}
    expected |= {"connections_to_a_peer": 6}
    assert row._windows([(before, after), (quiet, quiet)], watched=True) == {**expected, "in_flight_bytes": 2000}
    assert row._windows([(before, after)], watched=False) == {**expected, "in_flight_bytes": None}
    for unseen in ({}, quiet):
        assert set(row._windows([(unseen, unseen)], watched=True).values()) == {None}
