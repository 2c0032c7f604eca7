"""The buffers of hosts, as they act on real connections."""

import sys
from pathlib import Path

import exec_claims
import pytest

STREAM = [sys.executable, str(Path(__file__).parent / "programs" / "stream.py"), "5"]
FAR = ["exec", "--profile", "uniform", "--rtt", "100ms", "-n", "2"]
WINDOW = 3 << 20


@pytest.mark.parametrize("emulator", ["relay", pytest.param("netem", marks=[pytest.mark.netem, pytest.mark.long])])
def test_a_connection_reaches_the_window_of_its_host_and_the_user_is_told(bench, emulator):
    """Before 6.6, as in User-Mode Linux, the window is what the kernel itself makes of the buffers of that time."""
    result = bench.run(*FAR, "--rate", "400Mbit", "--emulator", emulator, "--", *STREAM)
    assert result.code == 0, result.err
    assert "TCP cubic, stock-6.1 (at most 3.15 MB in flight)" in result.err
    row = exec_claims.row_of(result, bench)
    assert row["host_tcp"] == "stock-6.1"
    assert row["window_bytes"] == pytest.approx(WINDOW, rel=0.02)
    assert row["in_flight_bytes"] <= 1.02 * WINDOW
    assert "connections waited for the hosts' buffers, not for the network" in result.err


def test_tuned_hosts_wait_for_the_network_alone(bench):
    result = bench.run(*FAR, "--rate", "100Mbit", "--preset", "tuned", "--", *STREAM)
    assert result.code == 0, result.err
    assert "TCP cubic, tuned\n" in result.err
    row = exec_claims.row_of(result, bench)
    assert row["host_tcp"] is None
    assert row["window_limited_pct"] < 10
    assert "waited for" not in result.err
