"""The collective `hierarchical` on an emulated network whose sites share their links."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timed

NETWORK = """src,dst,rtt_ms,up_mbps,down_mbps
paris,,,40,40
tokyo,,,40,40
paris,tokyo,20,,
"""
SPEC = """
schema = 1
name = "sites"

[workload]
params = 125_000
tensors = 2
step_time = "25ms"

[network]
profile = "sites.csv"
place = { paris = 2, tokyo = 2 }
tcp = { congestion = "reno", slow_start_after_idle = false }

[algorithms]
ssgd = {}

[sweep]
workers = [4]
collective = ["direct", "hierarchical"]

[run]
repeats = 1
window = "20 steps"
"""


def test_one_vector_a_site_takes_half_as_long_as_one_a_worker(bench):
    (bench.folder / "sites.csv").write_text(NETWORK)
    bench.spec(SPEC)
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    rows = {row["collective"]: row for row in bench.rows("sites") if row["workers"] == 4}
    by_site = rows["hierarchical"]
    assert by_site["step_time_s"] == pytest.approx(by_site["predicted_step_time_s"], rel=0.15)
    assert by_site["retransmits"] == 0
    assert rows["direct"]["retransmits"] < 25  # hundreds, if TCP had first met these paths without their delay
    took = {name: row["step_time_s"] - 0.025 for name, row in rows.items()}
    assert took["direct"] > 1.5 * took["hierarchical"]
