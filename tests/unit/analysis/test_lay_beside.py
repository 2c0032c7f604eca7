"""Another run beside one's own: which of its cells are drawn, and what is said of their conditions."""

from __future__ import annotations

import pytest
import synthetic_rows

from wanbench.harness.analysis.compare import lay_beside
from wanbench.harness.analysis.summary import AnalysisError, frame, pivots


@pytest.fixture(scope="module")
def pivot():
    (found,) = pivots(frame(synthetic_rows.latency_sweep()))
    return found


def simulated(**change):
    return synthetic_rows.latency_sweep(reps=1, testbed="virtual", emulator=None, **change)


def test_cells_with_the_same_algorithm_and_column_lie_beside_each_other(pivot):
    beside = lay_beside(pivot, simulated(), "other").beside
    assert beside.lines.keys() == pivot.lines.keys()
    assert (beside.run, beside.network, beside.different) == ("other", "simulated", ())
    assert beside.mark == "other, simulated"


def test_algorithms_and_round_trips_that_only_the_other_run_has_are_left_out(pivot):
    rows = simulated()
    far = [{**row, "rtt_ms": 8000.0, "cell": f"far-{row['cell']}"} for row in rows if row["algorithm"] == "ssgd"]
    new = [{**row, "algorithm": "mine", "cell": f"new-{row['cell']}"} for row in rows if row["algorithm"] == "ssgd"]
    assert lay_beside(pivot, rows + far + new, "other").beside.lines.keys() == pivot.lines.keys()


def test_a_round_trip_between_those_of_the_own_run_is_kept(pivot):
    rows = [{**row, "rtt_ms": 50.0} for row in simulated() if row["rtt_ms"] == 20.0 or row["workers"] == 1]
    assert {column for _, column in lay_beside(pivot, rows, "other").beside.lines} == {50.0}


def test_other_conditions_are_stated_and_the_rate_is_that_of_full_size_messages(pivot):
    alone, many = (
        [row for row in simulated() if row["workers"] == 1],
        [row for row in simulated() if row["workers"] != 1],
    )
    full = [{**row, "payload_scale": 1.0, "rate_mbps": row["rate_mbps"] / row["payload_scale"]} for row in many]
    assert lay_beside(pivot, alone + full, "other").beside.different == ("payload scale 1",)
    faster = [{**row, "rate_mbps": 2 * row["rate_mbps"], "workers": 8} for row in many]
    assert lay_beside(pivot, alone + faster, "other").beside.different == ("8 workers", "rate 20 Gbit/s")


def test_another_collective_or_profile_shares_no_figure(pivot):
    assert lay_beside(pivot, simulated(collective="gloo"), "other") is pivot
    assert lay_beside(pivot, synthetic_rows.world4(), "other") is pivot
    assert lay_beside(pivot, [], "other") is pivot


def test_of_two_cells_in_one_place_the_more_similar_one_is_taken(pivot):
    eight = [{**row, "workers": 8, "cell": f"{row['cell']}-8"} for row in simulated() if row["workers"] != 1]
    beside = lay_beside(pivot, simulated() + eight, "other").beside
    assert {line["workers"] for line in beside.lines.values()} == {4}
    twelve = [{**row, "workers": 12, "cell": f"{row['cell']}-12"} for row in simulated() if row["workers"] != 1]
    alone = [row for row in simulated() if row["workers"] == 1]
    with pytest.raises(AnalysisError, match=r"^other: ssgd, RTT 0 ms: several cells could be drawn beside it$"):
        lay_beside(pivot, alone + eight + twelve, "other")
