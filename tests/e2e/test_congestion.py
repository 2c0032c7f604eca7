"""TCP's congestion control as an axis, on real connections."""

from __future__ import annotations

import json
from pathlib import Path

from cli_session import CARRIED, by_numbers

LOADED = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def test_a_sweep_over_congestion_controls_uses_each_of_them(bench):
    """Also those that the kernel lets no namespace choose. Workers refuse to begin if a connection has another one."""
    axis = f"congestion = {json.dumps(LOADED)}"
    bench.spec(by_numbers("tcp", "ssgd = {}", network=CARRIED).replace("[sweep]", f"[sweep]\n{axis}"))
    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    rows = {row["tcp"]: row for row in bench.rows("tcp") if row["workers"] == 2}
    assert sorted(rows) == sorted(LOADED)
    for name, row in rows.items():
        network = json.loads((bench.out / "tcp" / "cells" / row["cell"] / "rep-0" / "network.json").read_text())
        assert network["tcp"]["tcp_congestion_control"] == name
