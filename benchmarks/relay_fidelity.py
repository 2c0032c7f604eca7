"""Measure how faithful an emulator is on this host, from 5 Mbit/s to 10 Gbit/s, and what it costs.

    python benchmarks/relay_fidelity.py [--seconds 4] [--rates 5,100,1000,10000]

Each line is a network of four workers, each on its own site: configured and measured one-way delay, rate and loss, then
TCP. The relay moves segments, then single packets. The last lines are netem, on this kernel or, if it has no netem, in
User-Mode Linux, up to 100 Mbit/s: there a packet costs a millisecond. It needs root, or user namespaces and access to
/dev/net/tun, and takes five to six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.lab import Lab  # noqa: E402
from wanbench.harness.emulators import choice  # noqa: E402
from wanbench.harness.emulators.emulator import Emulator  # noqa: E402
from wanbench.harness.emulators.plan import EmulatedNetwork, build, worker_address  # noqa: E402
from wanbench.harness.emulators.probe import TOLERANCES, probe  # noqa: E402
from wanbench.netprofiles import Delay, Rate, Ratio, uniform  # noqa: E402
from wanbench.workloads.process.tun import tcp_counters  # noqa: E402

_RTT_MS, _LOSS = 10.0, 0.01
_WORKERS = 4
_PORT = 5001
_GUEST_MBIT = 100
_MARK = "relay_fidelity: "
_COLUMNS = (
    ("emulator", 19, ""), ("rate", 6, ".0f"), ("measured", 13, ""), ("one-way", 7, ".1f"), ("measured", 11, ""),
    ("over", 4, ""), ("loss %", 6, ".2f"), ("TCP 1 flow", 10, ".0f"), ("retrans", 7, ""), ("4 flows", 7, ".0f"),
    ("late p50", 8, ".2f"), ("p99", 5, ".2f"), ("packets", 7, ".1f"), ("ms/MB", 5, ".2f"),
)  # fmt: skip


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="5,100,1000,10000", help="in Mbit/s, separated by commas")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each TCP transfer")
    parser.add_argument("--emulator", choices=("relay", "single", "netem"), help="print the lines of one as JSON")
    asked = parser.parse_args()
    rates = [float(rate) for rate in asked.rates.split(",")]
    if asked.emulator:
        for rate in rates:
            print(_MARK + json.dumps(measure(asked.emulator, rate, asked.seconds)), flush=True)
        return
    print(f"Rates in Mbit/s, times in ms. Round trip {_RTT_MS:g} ms; loss is configured as {100 * _LOSS:g} %.")
    print(
        "measured: minimum and maximum of all paths. over: packets that overtook others. 4 flows: in a ring, at once."
    )
    print(
        "late: beyond the due time. packets: per segment. ms/MB: processor time of the emulator per MB of one flow.\n"
    )
    print(" ".join(name.rjust(width) for name, width, _ in _COLUMNS))
    for emulator in ("relay", "single", "netem"):
        for line in lines_of(emulator, asked):
            cells = [_cell(value, width, form) for value, (_, width, form) in zip(line, _COLUMNS, strict=True)]
            print(" ".join(cells), flush=True)


def lines_of(emulator: str, asked: argparse.Namespace) -> Iterator[list[Any]]:
    """Yield the measured lines of one emulator, from a process of its own."""
    guest = emulator == "netem" and choice.kernel_lacks() is not None
    rates = [rate for rate in asked.rates.split(",") if not guest or float(rate) <= _GUEST_MBIT]
    command = [sys.executable, __file__, "--emulator", emulator, "--rates", ",".join(rates)]
    command += ["--seconds", str(asked.seconds)]
    command = ["sh", str(ROOT / "scripts/uml-run.sh"), *command] if guest else command
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if _MARK in text:
                line = json.loads(text.partition(_MARK)[2])
                yield [f"{line[0]}{', in UML' if guest else ''}", *line[1:]]
    if process.returncode:
        raise SystemExit(f"relay_fidelity: {emulator}: ended with status {process.returncode}")


def measure(emulator: str, mbit: float, seconds: float) -> list[Any]:
    """Return one line of the table."""
    os.environ["WANBENCH_OFFLOAD"] = "on" if emulator == "relay" else "off"
    kind = "netem" if emulator == "netem" else "relay"
    network = network_of(mbit)
    lab = Lab(network, starter(kind))
    try:
        report = probe(network, lab.workers, tolerance=TOLERANCES[kind])
        rates = [row.measured_rate_mbit for row in report.rows if row.measured_rate_mbit is not None]
        delays = [row.measured_one_way_ms for row in report.rows if row.measured_one_way_ms is not None]
        overtaken = sum(row.inversions for row in report.rows)
        lab.emulator.stats(reset=True)
        one, resent = flows(lab, [(0, 1)], seconds)
        stats = lab.emulator.stats(reset=True)
        four, _ = flows(lab, [(rank, (rank + 1) % _WORKERS) for rank in range(_WORKERS)], seconds)
        lab.emulator.apply(network_of(mbit, _LOSS))
        lossy = probe(network_of(mbit, _LOSS), lab.workers, tolerance=TOLERANCES[kind]).rows
    finally:
        lab.close()
    name = {"relay": "relay", "single": "relay, one by one", "netem": "netem"}[emulator]
    per_segment = stats.packets / stats.segments if stats.segments else None
    ms_per_mb = None if stats.cpu_s is None else stats.cpu_s * 1e3 / (stats.bytes / 1e6)
    return [
        name, mbit, _range(rates), _RTT_MS / 2, _range(delays, ".2f"), overtaken,
        100 * sum(row.lost for row in lossy) / sum(row.sent for row in lossy), one, resent, four,
        stats.lateness_p50_ms, stats.lateness_p99_ms, per_segment, ms_per_mb,
    ]  # fmt: skip


def network_of(mbit: float, loss: float = 0.0) -> EmulatedNetwork:
    """A uniform network with these up and down rates."""
    profile = uniform(_WORKERS, Delay.from_ms(_RTT_MS), Rate.from_mbit(mbit), loss=Ratio(loss))
    return build(profile, [site.name for site in profile.sites])


def starter(kind: str) -> type[Emulator]:
    """The class of an emulator."""
    from wanbench.harness.emulators.emulator import NetemEmulator, RelayEmulator

    return NetemEmulator if kind == "netem" else RelayEmulator


def flows(lab: Lab, pairs: list[tuple[int, int]], seconds: float) -> tuple[float, int]:
    """Send over TCP between pairs of workers at once. Return the sum of their goodputs in Mbit/s, and retransmits."""
    to = dict(pairs)
    begin = time.monotonic() + 0.5
    ends = [
        lab.run(
            rank,
            exchange,
            worker_address(rank) if rank in to.values() else None,
            worker_address(to[rank]) if rank in to else None,
            begin,
            seconds,
        )
        for rank in range(_WORKERS)
    ]
    done = [end.result() for end in ends]
    return sum(mbit for mbit, _ in done), sum(resent for _, resent in done)


def exchange(address: str | None, to: str | None, begin: float, seconds: float) -> tuple[float, int]:
    """Receive at an address, and send to another, in a worker. Return received Mbit/s and retransmitted segments."""
    before = tcp_counters()["RetransSegs"]
    with ThreadPoolExecutor(2) as threads:
        received = threads.submit(receive, address) if address else None
        if to:
            threads.submit(send, to, begin, seconds).result()
        mbit = received.result() if received else 0.0
    return mbit, tcp_counters()["RetransSegs"] - before


def receive(address: str) -> float:
    """Receive one connection until its end. Return its rate in Mbit/s, without the first tenth of its time."""
    with socket.create_server((address, _PORT)) as listener:
        connection, _ = listener.accept()
    marks = []
    total, buffer = 0, bytearray(1 << 20)
    with connection:
        while count := connection.recv_into(buffer):
            total += count
            marks.append((time.monotonic(), total))
    first, last = marks[0][0], marks[-1]
    begin = next(mark for mark in marks if mark[0] >= first + (last[0] - first) / 10)
    return (last[1] - begin[1]) * 8 / (last[0] - begin[0]) / 1e6


def send(to: str, begin: float, seconds: float) -> None:
    """Send from `begin`, in seconds of the monotonic clock."""
    time.sleep(max(0.0, begin - time.monotonic()))
    data = bytes(1 << 20)
    with socket.create_connection((to, _PORT)) as connection:
        while True:
            connection.sendall(data)
            if time.monotonic() > begin + seconds:
                break


def _range(values: list[float], form: str = ".4g") -> str:
    return f"{min(values):{form}}-{max(values):{form}}" if values else "-"


def _cell(value: Any, width: int, form: str) -> str:
    return ("-" if value is None else format(value, form)).rjust(width)


if __name__ == "__main__":
    main()
