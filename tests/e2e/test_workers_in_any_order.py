"""Cells with fewer and more workers after one another, in one slot: none disturbs the next."""

from __future__ import annotations

from on_relay import expand

from wanbench.harness.rep.measure import measure
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.netns import NetnsTestbed

WORKERS = (2, 3, 4, 5)
ORDER = (5, 2, 4, 3, 5)
SPEC = {
    "schema": 1,
    "name": "any-order",
    "workload": {"params": 20_000, "step_time": "5ms"},
    "network": {"profile": "uniform", "rate": "200Mbit"},
    "comm": {"collective": "gloo"},
    "algorithms": {"delayed": {"delay": 4}},
    "sweep": {"workers": list(WORKERS), "rtt": ["20ms"]},
    "run": {"testbed": "netns", "emulator": "relay"},
}


def test_packets_left_over_from_a_cell_do_not_count_against_the_next(tmp_path):
    """Workers that a cell does not use can still be closing the connections of the cell before."""
    cells = {cell.workers: cell for cell in expand(Spec.from_dict(SPEC), "any-order")}
    testbed = NetnsTestbed(tmp_path)
    try:
        slot = testbed.open_slot("relay")
        for number, workers in enumerate(ORDER):
            folder = tmp_path / str(number)
            folder.mkdir()
            row = measure(cells[workers].repetition(0), slot, folder, tmp_path, None)
            assert "lost outside" not in (row["reason"] or ""), f"{workers} workers after {ORDER[:number]}"
    finally:
        testbed.close()
