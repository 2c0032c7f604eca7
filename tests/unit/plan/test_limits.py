"""The law says where it does not hold, and stays silent there."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import predict
from wanbench.harness.spec.experiment import Spec

AWAKE = {"congestion": "reno", "slow_start_after_idle": False}
UNEVEN = """src,dst,rtt_ms,rate_mbps,up_mbps,down_mbps
a,,,,100,100
b,,,,100,100
c,,,,100,100
a,b,20,{near},,
a,c,200,{far},,
b,c,200,{far},,
"""


def cell(
    algorithm: dict[str, object], megabytes: float, *, collective: str = "direct", **network: object
) -> TrainingCell:
    """Four workers with steps of 100 ms, or three on a named profile."""
    table = {"tcp": AWAKE, **network}
    spec = Spec.from_dict(
        {
            "schema": 1,
            "name": "limits",
            "workload": {"params": int(megabytes * 250_000), "tensors": 2, "step_time": "100ms"},
            "network": table,
            "comm": {"collective": collective},
            "algorithms": {"a": algorithm},
            "sweep": {"workers": [3 if "profile" in table else 4]},
            "run": {"testbed": "virtual"},
        }
    )
    found = expand(spec, "limits.toml")[-1]
    assert isinstance(found, TrainingCell)
    return found


RATE = {"rate": "10Gbit"}
SSGD, HIDDEN = {"kind": "ssgd"}, {"kind": "delayed", "delay": 20}


def test_losses_that_cost_more_than_the_message_silence_the_law():
    lossy = cell(SSGD, 10, rtt="200ms", rate="100Mbit", loss="0.1%")
    assert (lossy.predicted_step_time_s, lossy.law_gap) == (None, "packet loss")
    assert lossy.expected_seconds > 20  # the estimate of the run's length does not depend on the gap


def test_the_estimate_of_a_runs_length_has_the_messages_that_open_tcps_windows():
    slow = cell(SSGD, 10, rtt="10ms", rate="10Mbit")
    wire_s = predict(slow.law_inputs).all_reduce_s
    assert wire_s > 12  # a step is little else
    assert slow.expected_seconds == pytest.approx((slow.steps + 8 + 1) * wire_s, rel=0.03)  # four rounds of two; drain


@pytest.mark.parametrize(
    ("algorithm", "megabytes", "loss"),
    [(HIDDEN, 0.01, "0.1%"), (SSGD, 10, "0.00001%")],
    ids=["a delay hides the retransmissions", "no packet of a repetition is lost"],
)
def test_losses_that_do_not_show_leave_the_prediction(algorithm, megabytes, loss):
    lossy, whole = (cell(algorithm, megabytes, rtt="100ms", rate="100Mbit", loss=each) for each in (loss, "0%"))
    assert lossy.law_gap is None
    assert lossy.predicted_step_time_s == whole.predicted_step_time_s


@pytest.mark.parametrize(("megabytes", "rate", "binds"), [(100, {}, False), (400, {}, True), (400, RATE, False)])
def test_a_piece_larger_than_a_window_takes_round_trips_unless_buffers_are_made_for_the_rate(megabytes, rate, binds):
    large = cell(SSGD, megabytes, rtt="250ms", **rate)
    assert (large.law_inputs.windows_bytes is not None) == binds
    assert large.law_gap is None


@pytest.mark.parametrize(("rtt", "binds"), [("1s", False), ("8s", True)])
def test_messages_in_flight_that_need_more_than_the_largest_window_wait_for_it(rtt, binds):
    assert (cell(HIDDEN, 400, rtt=rtt, rate="10Gbit").law_inputs.windows_bytes is not None) == binds


@pytest.mark.parametrize(("period", "gap"), [(1, None), (20, "TCP's slow start after a pause")])
def test_a_pause_silences_the_law_if_tcp_starts_slowly_after_it(period, gap):
    idle = {"slow_start_after_idle": True}
    sparse = cell({"kind": "sparse", "period": period}, 4, rtt="100ms", rate="100Mbit", tcp=idle)
    assert sparse.law_gap == gap
    assert cell({"kind": "sparse", "period": period}, 4, rtt="100ms", rate="100Mbit").law_gap is None


@pytest.mark.parametrize(("idle", "gap"), [(False, None), (True, "TCP's slow start after a pause")])
def test_a_pause_silences_the_law_on_stock_hosts_too(idle, gap):
    """After 20 steps, a window of 3 MiB has shrunk to 10 packets, and doubles in eight round trips."""
    tcp = {"preset": "stock", "slow_start_after_idle": idle}
    sparse = cell({"kind": "sparse", "period": 20}, 100, rtt="200ms", rate="10Gbit", tcp=tcp)
    assert sparse.law_inputs.windows_bytes is not None
    assert sparse.law_gap == gap


@pytest.mark.parametrize(
    ("collective", "near", "far", "gap"),
    [
        ("direct", 50, 50, None),
        ("direct", 10, 50, "paths differ"),
        ("ring", 50, 50, None),
        ("gloo", 50, 50, "paths differ"),
    ],
)
def test_paths_may_differ_only_as_far_as_the_collective_is_understood(tmp_path, collective, near, far, gap):
    file = tmp_path / "uneven.csv"
    file.write_text(UNEVEN.format(near=near, far=far))
    assert cell(SSGD, 1, collective=collective, profile=str(file)).law_gap == gap


def test_other_gaps_have_their_reasons():
    assert cell({"kind": "sgp"}, 1, rtt="20ms").law_gap == "more than all-reduces"
    assert cell(SSGD, 1, rtt="20ms").law_gap is None
