"""The same network trains at the same speed, whether a CSV or a TOML file describes it."""

from __future__ import annotations

import pytest
from on_relay import expand
from small_spec import GOOD

from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

UP_MBPS, PARAMS, STEP_S = 20, 1_000_000, 0.01
PATHS = "src,dst,rtt_ms,rate_mbps,up_mbps\nhome,london,18,200,\nhome,tokyo,240,100,\nlondon,tokyo,225,500,\n"
TOML = f"""
schema = 1
name = "net"
description = "Three sites."
sites = [{{ name = "home", up = "{UP_MBPS}Mbit" }}, {{ name = "london" }}, {{ name = "tokyo" }}]
paths = [
  {{ src = "home", dst = "london", rtt = "18ms", rate = "200Mbit" }},
  {{ src = "home", dst = "tokyo", rtt = "240ms", rate = "100Mbit" }},
  {{ src = "london", dst = "tokyo", rtt = "225ms", rate = "500Mbit" }},
]
"""


@pytest.fixture
def scalability(tmp_path, monkeypatch):
    """The scalability of ssgd with three workers on the network in a file."""
    monkeypatch.chdir(tmp_path)

    def of(file, text):
        (tmp_path / file).write_text(text)
        changes = {"network.profile": file, "workload.params": PARAMS, "sweep.workers": [3]}
        spec = Spec.from_toml(GOOD, "x.toml").override(changes, drop=("network.rate", "sweep.rtt"))
        (cell,) = (cell for cell in expand(spec, "x.toml") if not cell.is_baseline)
        outcome = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp(slow_start_after_idle=False)).outcomes[0]
        return STEP_S * cell.window / ((outcome.window_end_ns - outcome.window_begin_ns) / 1e9)

    return of


def test_a_shared_uplink_slows_training_alike_in_csv_and_in_toml(scalability):
    from_csv = scalability("net.csv", PATHS + f"home,,,,{UP_MBPS}\n")
    assert from_csv == scalability("net.toml", TOML)
    # Each worker sends at least 4/3 of the gradients.
    assert from_csv < STEP_S / (4 / 3 * 4 * PARAMS * 8 / (UP_MBPS * 1e6))
    assert from_csv < 0.9 * scalability("paths.csv", PATHS)
