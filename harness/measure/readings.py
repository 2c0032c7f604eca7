"""The values of a path in the output of ping and iperf3."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.iperf3 import Report, as_report, read_report, received
from wanbench.harness.measure.ping import Pings, each_way, read_pings


@dataclass(frozen=True)
class Reading:
    """The values of one direction of one output. A value that it does not have is None.

    Attributes:
        rtt_ms: median of the round trips.
        jitter_ms: standard deviation of one direction, estimated as half the distance between the 16th and the 84th
            percentile of the round trips over sqrt(2).
        loss_pct: loss of each direction that explains the lost pings, if both lose alike. None if nothing tells how
            many were lost. UDP of iperf3 may fill the queue, so its loss is not that of the path.
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


def read(text: str, name: str, day: date) -> list[Reading]:
    """Parse the output of ping, or the JSON of iperf3 (`-J`), which has two readings with `--bidir`.

    Args:
        name: name of the file or host, for messages and the source.
        day: day of the measurement.

    Raises:
        SpecError: the text is neither, or has no measurement of one run.
    """
    about = f"{name}, {day}"
    try:
        if (report := read_report(text)) is not None:
            return list(_of_iperf3(report, about))
        if (pings := read_pings(text)) is None:
            raise ValueError("expected output of ping (with `time=... ms`) or the JSON of `iperf3 -J`, got neither")
        return [_of_ping(pings, about)]
    except ValueError as error:
        raise SpecError(f"{name}: {error}") from None


def _of_ping(pings: Pings, about: str) -> Reading:
    times, sent = list(pings.rtts_ms.values()), pings.sent
    if not times:
        raise ValueError(f"none of {sent} pings was answered, so there is no round trip; ping a host that answers")
    return Reading(
        rtt_ms=round(statistics.median(times), 3),
        jitter_ms=_deviation(times),
        loss_pct=None if sent is None else round(100 * each_way(1 - len(times) / sent), 4),
        source=f"ping, {pings.summary}, {about}",
    )


def _deviation(times: list[float]) -> float | None:
    if len(times) < 10:
        return None
    ordered = statistics.quantiles(times, n=100, method="inclusive")
    return round((ordered[83] - ordered[15]) / 2 / 2**0.5, 4)


def _of_iperf3(report: Report, about: str) -> Iterator[Reading]:
    start = report.start
    with as_report():
        flows = int(start.get("test_start", {}).get("num_streams") or len(start.get("connected", [])) or 1)
        how = f"iperf3{' --bidir' if report.both else ''}{{}}, {'one flow' if flows == 1 else f'{flows} flows'}"
        for back, mbps, seconds in received(report):
            yield Reading(
                rate_mbps=round(mbps, 3),
                back=back,
                server="{host}:{port}".format_map(start.get("connecting_to", {"host": "", "port": ""})),
                flows=flows,
                begun_s=int(start.get("timestamp", {}).get("timesecs", 0)),
                source=f"{how.format(' -R' if back else '')}, {seconds:.0f} s, {about}",
            )
