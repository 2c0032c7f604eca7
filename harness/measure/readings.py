"""The values in the output of ping and iperf3."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import dataclass
from datetime import date
from typing import Any

from wanbench.harness.errors import SpecError

_SAMPLE = re.compile(r"\btime[=<](\d+(?:\.\d+)?) ?ms")
_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+)(?: packets)? received")


@dataclass(frozen=True)
class Reading:
    """The values of one output. A value that it does not have is None.

    Attributes:
        rtt_ms: median of the round trips.
        jitter_ms: standard deviation of one direction, estimated as half the distance between the 16th and the 84th
            percentile of the round trips over sqrt(2).
        loss_pct: lost pings; None if none was lost, which is only an upper bound. UDP of iperf3 may fill the queue, so
            its loss is not that of the path.
        rate_mbps: rate of all flows at their receiver.
        back: the rate is that towards the machine that ran iperf3 (`-R`).
        server: host and port of the iperf3 server.
        flows: number of flows.
        begun_s: begin of the flows, in seconds since 1970.
        source: readable source, with numbers and date.
    """

    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss_pct: float | None = None
    rate_mbps: float | None = None
    back: bool = False
    server: str = ""
    flows: int = 0
    begun_s: int = 0
    source: str = ""


def read(text: str, name: str, day: date) -> Reading:
    """Parse the output of ping, or the JSON of iperf3 (`-J`).

    Args:
        name: name of the file or host, for messages and the source.
        day: day of the measurement.

    Raises:
        SpecError: the text is neither, or has no measurement.
    """
    if text.lstrip().startswith("{"):
        return _iperf3(text, name, day)
    return _ping(text, name, day)


def _ping(text: str, name: str, day: date) -> Reading:
    times = [float(sample) for sample in _SAMPLE.findall(text)]
    if not times:
        raise SpecError(f"{name}: expected output of ping (with `time=... ms`) or JSON of iperf3, got neither")
    counts = _COUNTS.search(text)
    sent, received = (int(counts[1]), int(counts[2])) if counts else (len(times), len(times))
    lost = 100 * (1 - received / sent) if sent else 0.0
    return Reading(
        rtt_ms=round(statistics.median(times), 3),
        jitter_ms=_deviation(times),
        loss_pct=round(lost, 4) if lost > 0 else None,
        source=f"ping, {received} of {sent} answers, {name}, {day}",
    )


def _deviation(times: list[float]) -> float | None:
    if len(times) < 10:
        return None
    ordered = statistics.quantiles(times, n=100, method="inclusive")
    return round((ordered[83] - ordered[15]) / 2 / 2**0.5, 4)


def _iperf3(text: str, name: str, day: date) -> Reading:
    try:
        data: dict[str, Any] = json.loads(text)
        if "error" in data:
            raise SpecError(f"{name}: iperf3 failed: {data['error']}")
        end = data["end"]
        udp = "lost_percent" in end.get("sum", {})  # this sum is of what was sent
        total = end["sum"] if udp else end.get("sum_received") or end["sum"]
        arrived = 1 - float(total["lost_percent"]) / 100 if udp else 1.0
        mbps = float(total["bits_per_second"]) / 1e6 * arrived
        seconds = float(total["seconds"])
        start = data.get("start", {})
        back = bool(start.get("test_start", {}).get("reverse"))
        begun_s = int(start.get("timestamp", {}).get("timesecs", 0))
        server = "{host}:{port}".format_map(start.get("connecting_to", {"host": "", "port": ""}))
        flows = len(start.get("connected", [])) or 1
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise SpecError(f"{name}: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`") from None
    if mbps <= 0:
        raise SpecError(f"{name}: iperf3 transferred no data; measure again")
    tool = "iperf3 -R" if back else "iperf3"
    flow_count = "one flow" if flows == 1 else f"{flows} flows"
    return Reading(
        rate_mbps=round(mbps, 3),
        back=back,
        server=server,
        flows=flows,
        begun_s=begun_s,
        source=f"{tool}, {flow_count}, {seconds:.0f} s, {name}, {day}",
    )
