"""A run on a Ray cluster of three nodes, of which one is killed in the middle, beside the same run on one node.

    python benchmarks/cluster.py [--out build/cluster]

The nodes are on this host, with a processor each, so they take turns for the emulated repetitions, and share its
processors for the simulated ones: wall times beside each other show what the cluster costs, not what it gains. Needs
root and the extra [ray]. The exit code is 1 if a repetition is lost or failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.results.store import RunFolder  # noqa: E402

_SPEC = """
schema = 1
name = "cluster"
[workload]
params = 100_000
tensors = 4
step_time = "50ms"
[network]
rate = "100Mbit"
tcp = { congestion = "reno" }
[algorithms]
ssgd = {}
sparse = { period = 4 }
dts = { delay = 4, period = 4 }
[sweep]
workers = [2]
testbed = ["virtual", "netns"]
rtt = ["10ms", "30ms"]
[run]
emulator = "relay"
repeats = 3
"""


def _finished(run: Path) -> int:
    return len([path for path in run.glob("cells/*/rep-*/result.json") if ".part" not in path.parent.name])


def measured(out: Path, nodes: int, kill_at: int | None) -> float:
    """Run on so many nodes, and kill one when this number of repetitions is finished. Return the seconds it took."""
    from ray.cluster_utils import Cluster

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "spec.toml").write_text(_SPEC)
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    others = [cluster.add_node(num_cpus=1) for _ in range(nodes - 1)]
    try:
        began = time.monotonic()
        words = ["run", str(out / "spec.toml"), "--out", str(out), "--engine", "ray", "--address", cluster.address]
        command = subprocess.Popen([sys.executable, "-m", "wanbench.harness.cli", *words, "--no-figures"], cwd=ROOT)
        while command.poll() is None:
            time.sleep(0.2)
            if kill_at is not None and _finished(out / "cluster") >= kill_at:
                cluster.remove_node(others[0], allow_graceful=False)
                print(f"-- a node was killed after {kill_at} repetitions", file=sys.stderr, flush=True)
                kill_at = None
        return time.monotonic() - began
    finally:
        cluster.shutdown()


def main() -> int:
    """Measure on one node and on three, and compare what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cluster", help="folder of the runs")
    asked = parser.parse_args()
    wrong = 0
    for nodes, kill_at in ((1, None), (3, 15)):
        out = asked.out.resolve() / f"{nodes}-nodes"
        took_s = measured(out, nodes, kill_at)
        rows = RunFolder(out / "cluster").rows()
        status = Counter(row["status"] for row in rows)
        hosts = sorted({row["host"] for row in rows if row["host"] is not None})
        wrong += len(rows) - status["ok"]
        print(f"{nodes} nodes: {len(rows)} repetitions, {dict(status)}, in {took_s:.0f} s; hosts: {', '.join(hosts)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
