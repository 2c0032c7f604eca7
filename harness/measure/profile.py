"""A profile of what ping and iperf3 measured, each value with its source."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.iperf3 import Report, as_report, read_report, received
from wanbench.harness.measure.ping import Pings, each_way, read_pings
from wanbench.netprofiles import Rate, toml_text

Pair = tuple[str, str]


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
        source: readable source, with numbers and date.
    """

    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss_pct: float | None = None
    rate_mbps: float | None = None
    back: bool = False
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
                source=f"{how.format(' -R' if back else '')}, {seconds:.0f} s, {about}",
            )


def profile_toml(name: str, paths: Mapping[Pair, Sequence[Reading]], stated: Mapping[str, Mapping[str, Rate]]) -> str:
    """Return a profile file.

    Args:
        paths: the readings of each pair of sites.
        stated: the `up` and `down` of sites that the user knows.

    Raises:
        SpecError: a pair has no reading of its round trip.
    """
    sites = dict.fromkeys(site for pair in paths for site in pair)
    sources: dict[str, str] = {}
    notes = list(_unknown_losses(paths))
    site_lines = [
        toml_text.value({"name": site} | {key: str(rate) for key, rate in stated.get(site, {}).items()})
        for site in sites
    ]
    complete = ((pair, [*readings, *_round_trips(pair, paths)]) for pair, readings in paths.items())
    path_lines = [_path(pair, readings, sources) for path in complete for pair, readings in _ways(*path)]
    lines = [
        "schema = 1",
        f"name = {toml_text.value(name)}",
        f"description = {toml_text.value('Measured between ' + ', '.join(sites) + '.')}",
        *(["notes = [", *(f"  {toml_text.value(note)}," for note in notes), "]"] if notes else []),
        *("", "sites = [", *(f"  {line}," for line in site_lines), "]", ""),
        "# A path in one direction is for both. One way takes half of the round trip.",
        "# If a share p of the round trips is lost, one way loses 1 - sqrt(1 - p) of the packets.",
        *("paths = [", *(f"  {line}," for line in path_lines), "]", ""),
        "[sources]",
        *(f"{tag} = {toml_text.value(source)}" for source, tag in sources.items()),
    ]
    return "\n".join(lines) + "\n"


def _unknown_losses(paths: Mapping[Pair, Sequence[Reading]]) -> Iterator[str]:
    for (src, dst), readings in paths.items():
        pings = [reading for reading in readings if reading.rtt_ms is not None]
        if pings and all(reading.loss_pct is None for reading in pings):
            yield f"{src} -> {dst}: the loss is unknown, so the path has none ({pings[-1].source})."


def _round_trips(pair: Pair, paths: Mapping[Pair, Sequence[Reading]]) -> list[Reading]:
    """The pings in the other direction, if this one has none: a round trip is the same from both ends."""
    if any(reading.rtt_ms is not None for reading in paths[pair]):
        return []
    return [reading for reading in paths.get(pair[::-1], ()) if reading.rtt_ms is not None]


def _ways(pair: Pair, readings: Sequence[Reading]) -> Iterator[tuple[Pair, list[Reading]]]:
    """The readings for each direction; a single entry if they do not tell the directions apart."""
    if len({reading.back for reading in readings if reading.rate_mbps is not None}) < 2:
        yield pair, list(readings)
        return
    for way, back in ((pair, False), (pair[::-1], True)):
        yield way, [reading for reading in readings if reading.rate_mbps is None or reading.back is back]


def _path(pair: Pair, readings: Sequence[Reading], sources: dict[str, str]) -> str:
    """A path as a line of TOML. Each value has the tag of its source, which is added to `sources`."""
    values = {"src": pair[0], "dst": pair[1]}
    for key, attribute, unit in (
        ("rtt", "rtt_ms", "ms"),
        ("jitter", "jitter_ms", "ms"),
        ("loss", "loss_pct", "%"),
        ("rate", "rate_mbps", "Mbit"),
    ):
        measured = [reading for reading in readings if getattr(reading, attribute) is not None]
        last = measured[-1] if measured else None
        if last is not None and (key != "loss" or last.loss_pct):  # no lost ping is only an upper bound
            tag = sources.setdefault(last.source, f"s{len(sources) + 1}")
            value = f"{getattr(last, attribute):g}{unit}"
            values |= {key: value, f"{key}_standing": "measured", f"{key}_source": tag}
        elif key == "rtt":
            raise SpecError(f"{pair[0]},{pair[1]}: no round-trip time; add output of ping")
    return toml_text.value(values)
