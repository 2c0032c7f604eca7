"""The collective `ring` on an emulated network with one slow path, beside the law and the simulated clock."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timed

NETWORK = """src,dst,rtt_ms,up_mbps,down_mbps
paris,,,40,40
tokyo,,,40,40
lagos,,,40,40
quito,,,40,40
paris,tokyo,600,,
paris,lagos,60,,
paris,quito,60,,
tokyo,lagos,60,,
tokyo,quito,60,,
lagos,quito,60,,
"""
SPEC = """
schema = 1
name = "ring"

[workload]
params = 50_000
tensors = 2
step_time = "25ms"

[network]
profile = "sites.csv"
tcp = { congestion = "reno", slow_start_after_idle = false }

[comm]
collective = "ring"

[algorithms]
ssgd = {}

[sweep]
workers = [4]
"comm.ring_order" = ["best", "ranks"]
testbed = ["netns", "virtual"]

[run]
repeats = 1
window = "10 steps"
"""


@pytest.mark.long  # the best order is found by the law each time
def test_the_best_order_avoids_the_slow_path_on_all_clocks(bench):
    (bench.folder / "sites.csv").write_text(NETWORK)
    bench.spec(SPEC)
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    rows = {(row["testbed"], row["axes"]["comm.ring_order"]): row for row in bench.rows("ring") if row["workers"] == 4}
    took = {key: row["step_time_s"] for key, row in rows.items()}
    for order in ("best", "ranks"):
        assert took["netns", order] == pytest.approx(rows["netns", order]["predicted_step_time_s"], rel=0.15)
        assert took["netns", order] == pytest.approx(took["virtual", order], rel=0.15)
        assert rows["netns", order]["retransmits"] == 0
    assert took["netns", "ranks"] > 2 * took["netns", "best"]
