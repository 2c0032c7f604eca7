"""Measure how faithful the relay is on this host: configured and measured values, lateness, processor time per packet.

    python benchmarks/relay_fidelity.py

It needs root, or user namespaces and access to /dev/net/tun. It takes about half a minute.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.base import EmulatorStats
from wanbench.harness.emulators.plan import build, worker_address
from wanbench.harness.emulators.probe.measure import probe
from wanbench.harness.emulators.probe.report import ProbeReport
from wanbench.harness.testbeds.base import Group
from wanbench.harness.testbeds.netns import NetnsTestbed
from wanbench.harness.testbeds.slot import WorkerSlot
from wanbench.netprofiles import Delay, Profile, Rate, load, uniform

_PAYLOAD_SCALE = 0.01
_LOAD_MBIT, _LOAD_S, _LOAD_FLOWS = 100, 4.0, 4
_PACKET_BYTES = 1500
_LEAD_S = 0.2


def main() -> None:
    """Print three tables: every path of world4, the shared uplink, and the relay under load."""
    with tempfile.TemporaryDirectory() as folder:
        testbed = NetnsTestbed(Path(folder))
        try:
            slot = testbed.open_slot("relay")
            profile = load("world4").scaled(_PAYLOAD_SCALE)
            print_probe(profile, measure(slot, profile))
            print_load(load_relay(slot))
        finally:
            testbed.close()


def measure(slot: WorkerSlot, profile: Profile) -> ProbeReport:
    """Probe every directed path with one worker per site, then the shared uplink."""
    network = build(profile, [site.name for site in profile.sites])
    workers = slot.prepare(Group(network.workers))
    slot.emulator.apply(network)
    return probe(network, workers)


def print_probe(profile: Profile, report: ProbeReport) -> None:
    """Print the fidelity table; the left value of each pair is the configured one."""
    print(f"{profile.name}, rates x {_PAYLOAD_SCALE:g}: configured and measured, per directed path")
    heads = f"{'one-way ms':>18} {'error':>7} {'jitter ms':>13} {'rate Mbit/s':>16} {'overtaken':>9} {'lost':>5}"
    print(f"{'path':<18} {heads}")
    for row in report.rows:
        print(
            f"{row.src + ' -> ' + row.dst:<18} {row.one_way_ms:>9.2f}{_cell(row.measured_one_way_ms, 9)}"
            f"{_cell(row.error_ms, 8, '+.2f')} {row.jitter_ms:>6.2f}{_cell(row.measured_jitter_ms, 7)}"
            f" {_cell(row.rate_mbit, 7, '.1f')}{_cell(row.measured_rate_mbit, 8, '.1f')} {row.inversions:>9}"
            f" {row.lost:>5}"
        )
    if report.shared_up is not None:
        shared = report.shared_up
        print(
            f"shared up of {shared.site} (to {', '.join(shared.to)} at once):"
            f" {shared.rate_mbit:.1f} configured, {_cell(shared.measured_rate_mbit, 0, '.1f')} Mbit/s measured"
        )
    print(f"largest error {_cell(report.one_way_error_ms, 0)} ms; {report.repeated} paths measured again")
    print("\n".join(report.reasons) or "all within tolerance")
    print(f"probe: {report.seconds:.1f} s\n")


def load_relay(slot: WorkerSlot) -> EmulatorStats:
    """Send steady UDP at full rate between disjoint pairs of workers, at a round trip of 100 ms."""
    profile = uniform(2 * _LOAD_FLOWS, Delay.from_ms(100), Rate.from_mbit(1.2 * _LOAD_MBIT))
    network = build(profile, [site.name for site in profile.sites])
    workers: list[Any] = list(slot.prepare(Group(network.workers)))
    slot.emulator.apply(network)
    per_s = _LOAD_MBIT * 125_000 / _PACKET_BYTES
    train = {
        "packets": int(per_s * _LOAD_S),
        "segment": 1,
        "bytes": _PACKET_BYTES,
        "burst": 8,
        "spacing_ns": int(8e9 / per_s),
    }
    slot.emulator.stats(reset=True)
    start_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
    for rank in range(0, network.workers, 2):
        address = worker_address(rank + 1)
        message = {"role": "send", "address": worker_address(rank), "to": [[address, 9]], "round": 0}
        workers[rank].send({"cmd": "probe", **message, "trains": [train | {"start_ns": start_ns}]})
    for rank in range(0, network.workers, 2):
        workers[rank].receive(_LOAD_S * 3)
    time.sleep(_LEAD_S)
    return slot.emulator.stats(reset=True)


def print_load(stats: EmulatorStats) -> None:
    """Print the work and the cost of the relay."""
    print(f"{_LOAD_FLOWS} flows of {_LOAD_MBIT} Mbit/s (UDP, {_PACKET_BYTES} bytes), round trip 100 ms")
    print(f"  delivered      {stats.packets} packets, {stats.bytes * 8 / _LOAD_S / 1e6:.0f} Mbit/s")
    print(f"  dropped        {sum(stats.drops.values())}")
    print(f"  processor      {_cell(stats.cpu_us_per_packet, 0, '.1f')} us per packet")
    print(
        f"  lateness       p50 {_cell(stats.lateness_p50_ms, 0)}, p99 {_cell(stats.lateness_p99_ms, 0)},"
        f" max {_cell(stats.lateness_max_ms, 0)} ms"
    )
    print(f"  read lag       p99 {_cell(stats.read_lag_p99_ms, 0)}, max {_cell(stats.read_lag_max_ms, 0)} ms")


def _cell(value: float | None, width: int, spec: str = ".2f") -> str:
    return ("-" if value is None else format(value, spec)).rjust(width)


if __name__ == "__main__":
    main()
