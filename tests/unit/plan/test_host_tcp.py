"""What the TCP of a host lets a connection have in flight, and what follows from it."""

from __future__ import annotations

import pytest
from small_spec import edited, swept

from wanbench.harness.emulators.plan import build
from wanbench.harness.plan.host_tcp import KERNELS, HostTcp, bottleneck, host_tcp
from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.spec.tables import TcpTable
from wanbench.netprofiles import Size, load
from wanbench.workloads.comm.windows import WINDOW_SHARE, in_turns
from wanbench.workloads.process.namespace import tcp_sysctls

MIB = 1 << 20
UNBINDING = 64 * MIB
FAST_AND_FAR = [
    ("params = 1000\n", "params = 10_000_000\n"),
    ('rate = "1Gbit"', 'rate = "2Gbit"\ntcp = { preset = "TUNED", slow_start_after_idle = false }'),
    ('rtt = ["10ms"]', 'rtt = ["100ms"]'),
]


def test_linux_before_6_6_advertises_half_of_its_receive_buffer():
    assert KERNELS["stock-6.1"].in_flight == 3 * MIB
    assert KERNELS["stock-6.1"].in_flight == 3 * MIB


def test_the_send_buffer_limits_a_host_whose_receive_buffer_is_large():
    """Programs wake up when a third of it is free, so five sixths of its 4 MiB are full on average."""
    host = KERNELS["stock-6.18"]
    assert host.receive * WINDOW_SHARE > 20 * MIB
    assert host.in_flight == pytest.approx(4 * MIB * 5 / 6, rel=0.03)


@pytest.mark.parametrize("preset", ["stock", "stock-6.1", "stock-6.18"])
def test_a_stock_host_has_cubic_unless_the_spec_says_otherwise(preset):
    assert TcpTable(preset=preset).congestion == "cubic"
    assert TcpTable(preset=preset).identity()["preset"] in KERNELS
    assert TcpTable(preset=preset, congestion="bbr").congestion == "bbr"
    assert TcpTable().congestion == "reno"


def test_single_keys_refine_a_preset():
    refined = TcpTable(preset="stock", receive_buffer=Size(16 * MIB))
    assert host_tcp(refined, UNBINDING) == HostTcp(16 * MIB, 4 * MIB, window_share=0.5)
    assert refined.host == "stock-6.1 receive=16MiB"
    assert host_tcp(TcpTable(send_buffer=Size(MIB)), UNBINDING).send == MIB


def test_buffers_shrink_with_scaled_messages_and_those_of_tuned_hosts_limit_nothing():
    assert host_tcp(TcpTable(preset="stock"), UNBINDING, 0.01).in_flight == pytest.approx(0.03 * MIB, rel=1e-3)
    assert host_tcp(TcpTable(), UNBINDING, 0.01).receive == UNBINDING


@pytest.mark.parametrize(("release", "largest"), [("6.1.0-18-amd64", 6 * MIB), ("6.18.44", 4_737_096)])
def test_each_kernel_gets_the_buffer_whose_window_is_that_of_the_preset(monkeypatch, release, largest):
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"release": release}))
    sysctls = tcp_sysctls(KERNELS["stock-6.1"].settings())
    assert sysctls["tcp_rmem"] == f"4096 131072 {largest}"
    assert sysctls["tcp_wmem"] == f"4096 16384 {4 * MIB}"


def test_a_preset_is_part_of_a_cell():
    stock, tuned = (cell for preset in ("stock", "tuned") for cell in swept(edited(*FAST_AND_FAR, ("TUNED", preset))))
    assert (stock.columns(0)["host_tcp"], tuned.columns(0)["host_tcp"]) == ("stock-6.1", None)
    assert stock.key != tuned.key


def test_the_law_predicts_nothing_where_bbr_waits_for_the_window_of_a_host():
    (cell,) = swept(edited(*FAST_AND_FAR, ("TUNED", 'stock", congestion = "bbr')))
    assert cell.law_gap == "TCP's window"


def test_windows_that_limit_nothing_change_no_prediction_and_no_record_of_it():
    (tuned,) = swept(edited(*FAST_AND_FAR, ("TUNED", "tuned")))
    assert tuned.law_inputs.windows_bytes is None
    assert "windows_bytes" not in tuned.law_inputs.to_json()


def test_a_recorded_window_is_read_again():
    (stock,) = swept(edited(*FAST_AND_FAR, ("TUNED", "stock")))
    assert stock.law_inputs.windows_bytes > 0
    assert PredictInputs.from_json(stock.law_inputs.to_json()) == stock.law_inputs


def carried(rate, rtt_s, queue, unsent, step_s=2e-4):
    """Bytes/s of a program that writes until its buffer is full, and again when a third of it is free."""
    sent, written, acknowledged, blocked = [0.0], 0.0, 0.0, False
    for now in range(1, round(60 * rtt_s / step_s)):
        acknowledged = sent[max(0, now - round(rtt_s / step_s))]
        blocked = written - acknowledged > (2 / 3 * queue if blocked else queue)
        if not blocked:
            written = min(sent[-1] + unsent, acknowledged + queue + 1)
        sent.append(min(sent[-1] + rate * step_s, written))
    return sent[-1] / (len(sent) * step_s)


@pytest.mark.parametrize("full", [3.8e6, 3.95e6, 4.05e6])
def test_a_paced_sender_whose_buffer_holds_about_a_pathful_pauses_for_a_part_of_it(full):
    queue, rtt_s = 4.11e6, 0.195
    rate, unsent = full / rtt_s, 0.02 * full / rtt_s
    assert full + unsent > queue
    assert carried(rate, rtt_s, queue, unsent) < 0.9 * rate
    assert in_turns(full, queue, unsent) / rtt_s == pytest.approx(carried(rate, rtt_s, queue, unsent), rel=0.07)


def test_a_sender_whose_kernel_still_has_bytes_to_send_does_not_pause():
    assert in_turns(2.5e6, 4.11e6, 5e6) == 2.5e6


def test_the_path_of_which_a_connection_takes_the_smallest_share_is_the_bottleneck():
    network = build(load("world4"), ["oregon", "ohio", "london", "tokyo"])
    path = bottleneck(network, KERNELS["stock-6.1"])
    shares = {
        (network.sites[a], network.sites[b]): KERNELS["stock-6.1"].in_flight
        / (network.rate(a, b) * (network.links[a, b].delay_ns + network.links[b, a].delay_ns) / 1e9)
        for a, b in network.links
    }
    assert (path.src, path.dst) in {pair for pair, share in shares.items() if share == min(shares.values())}
    assert path.carried_bps / path.rate_bps == pytest.approx(min(shares.values()))
    assert path.buffer_bytes >= 2 * path.rate_bps / 8 * path.rtt_ms / 1e3
    assert bottleneck(build(load("world4").scaled(1e-3), ["oregon", "tokyo"]), KERNELS["stock-6.1"]) is None
