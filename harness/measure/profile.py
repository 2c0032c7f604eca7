"""A profile of what ping and iperf3 measured, each value with its source.

If paths that were measured alone are slower at once, they share a link of their site.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.measure.iperf3 import Report, as_report, read_report, received
from wanbench.harness.measure.ping import Pings, each_way, read_pings
from wanbench.netprofiles import Rate, toml_text

Pair = tuple[str, str]

_CLEARLY_SLOWER = 0.9  # repeated measurements of one link differ by less
_APART_S = 2


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
    with as_spec_error(name, ValueError):
        if (report := read_report(text)) is not None:
            return list(_of_iperf3(report, about))
        if (pings := read_pings(text)) is None:
            raise ValueError("expected output of ping (with `time=... ms`) or the JSON of `iperf3 -J`, got neither")
        return [_of_ping(pings, about)]


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


@dataclass(frozen=True)
class AtOnce:
    """Several paths of one site, in one direction.

    Attributes:
        key: "up" or "down".
        rate_mbps: the sum of their rates at once.
        shared: at once they are clearly slower than alone.
        summary: both sums and the sources as text.
    """

    key: str
    rate_mbps: float
    shared: bool
    summary: str


def profile_toml(
    name: str,
    paths: Mapping[Pair, Sequence[Reading]],
    at_once: Mapping[str, Sequence[Reading]],
    stated: Mapping[str, Mapping[str, Rate]],
) -> str:
    """Return a profile file.

    Args:
        paths: the readings of each pair of sites.
        at_once: the rates of several paths from a site, measured at the same time.
        stated: the `up` and `down` of sites that the user knows. They replace measured ones.

    Raises:
        SpecError: a pair has no reading of its round trip, or rates cannot be compared.
    """
    sites = dict.fromkeys(site for pair in paths for site in pair)
    sources: dict[str, str] = {}
    shared = {site: compare(site, _alone(site, paths), readings) for site, readings in at_once.items()}
    notes = [note for site, compared in shared.items() for note in _notes(site, compared, stated.get(site, {}))]
    notes += _unknown_losses(paths)
    site_lines = [_site(site, stated.get(site, {}), shared.get(site, ()), sources) for site in sites]
    complete = ((pair, [*readings, *_round_trips(pair, paths)]) for pair, readings in paths.items())
    path_lines = [_path(pair, readings, sources) for path in complete for pair, readings in _ways(*path)]
    lines = [
        "schema = 1",
        f"name = {toml_text.value(name)}",
        f"description = {toml_text.value('Measured between ' + ', '.join(sites) + '.')}",
        *(["notes = [", *(f"  {toml_text.value(note)}," for note in notes), "]"] if notes else []),
        *("", "sites = [", *site_lines, "]", ""),
        "# A path in one direction is for both. One way takes half of the round trip.",
        "# If a share p of the round trips is lost, one way loses 1 - sqrt(1 - p) of the packets.",
        *("paths = [", *path_lines, "]", ""),
        "[sources]",
        *(f"{tag} = {toml_text.value(source)}" for source, tag in sources.items()),
    ]
    return "\n".join(lines) + "\n"


def _unknown_losses(paths: Mapping[Pair, Sequence[Reading]]) -> Iterator[str]:
    for (src, dst), readings in paths.items():
        pings = [reading for reading in readings if reading.rtt_ms is not None]
        if pings and all(reading.loss_pct is None for reading in pings):
            yield f"{src} -> {dst}: the loss is unknown, so the path has none ({pings[-1].source})."


def _alone(site: str, paths: Mapping[Pair, Sequence[Reading]]) -> Iterator[Reading]:
    return (reading for (src, _), readings in paths.items() if src == site for reading in readings if reading.rate_mbps)


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


def _notes(site: str, links: Iterable[AtOnce], stated: Mapping[str, Rate]) -> Iterator[str]:
    for link in links:
        if link.key in stated:
            yield f"{site}, {link.key}: the rate is stated; {link.summary}."
        elif not link.shared:
            yield f"{site}, {link.key}: no shared link was seen; {link.summary}."


def _site(site: str, stated: Mapping[str, Rate], links: Iterable[AtOnce], sources: dict[str, str]) -> str:
    cells = [f"name = {toml_text.value(site)}", *(f'{key} = "{rate}"' for key, rate in stated.items())]
    for link in links:
        if link.shared and link.key not in stated:
            cells += _measured(link.key, f"{link.rate_mbps:g}Mbit", link.summary, sources)
    return f"  {{ {', '.join(cells)} }},"


def _path(pair: Pair, readings: Sequence[Reading], sources: dict[str, str]) -> str:
    cells = [f"src = {toml_text.value(pair[0])}", f"dst = {toml_text.value(pair[1])}"]
    for key, attribute, unit in (
        ("rtt", "rtt_ms", "ms"),
        ("jitter", "jitter_ms", "ms"),
        ("loss", "loss_pct", "%"),
        ("rate", "rate_mbps", "Mbit"),
    ):
        measured = [reading for reading in readings if getattr(reading, attribute) is not None]
        last = measured[-1] if measured else None
        if last is not None and (key != "loss" or last.loss_pct):  # no lost ping is only an upper bound
            cells += _measured(key, f"{getattr(last, attribute):g}{unit}", last.source, sources)
        elif key == "rtt":
            raise SpecError(f"{pair[0]},{pair[1]}: no round-trip time; add output of ping")
    return f"  {{ {', '.join(cells)} }},"


def _measured(key: str, value: str, source: str, sources: dict[str, str]) -> list[str]:
    tag = sources.setdefault(source, f"s{len(sources) + 1}")
    return [f'{key} = "{value}"', f'{key}_standing = "measured"', f'{key}_source = "{tag}"']


def compare(site: str, alone: Iterable[Reading], at_once: Iterable[Reading]) -> list[AtOnce]:
    """Compare the rates of the paths of a site in each direction that was measured at once.

    Raises:
        SpecError: a path was not measured alone, the numbers of flows differ, or the paths were not measured at once.
    """
    alone, at_once = list(alone), list(at_once)
    links = []
    for key, back in (("up", False), ("down", True)):
        together = {reading.server: reading for reading in at_once if reading.back is back}
        by_server = {reading.server: reading for reading in alone if reading.back is back}
        if together:
            links.append(_sums(f"{site}, {key}", key, by_server, together))
    return links


def _sums(where: str, key: str, alone: Mapping[str, Reading], at_once: Mapping[str, Reading]) -> AtOnce:
    if len(at_once) < 2:
        raise SpecError(f"{where}: one host was measured at once; expected two or more")
    for server in at_once:
        if server not in alone:
            raise SpecError(f"{where}: {server} was measured at once, but not alone; add a measurement alone")
    each_alone = [alone[server] for server in at_once]
    flows = sorted({reading.flows for reading in (*each_alone, *at_once.values())})
    if len(flows) > 1:
        raise SpecError(f"{where}: {flows[0]} and {flows[-1]} flows; expected the same `iperf3 -P` alone and at once")
    begins = [reading.begun_s for reading in at_once.values()]
    if (apart := max(begins) - min(begins)) > _APART_S:
        raise SpecError(f"{where}: the measurements at once began {apart} s apart; expected {_APART_S} s at most")
    rate, alone_rate = (
        sum(reading.rate_mbps or 0 for reading in readings) for readings in (at_once.values(), each_alone)
    )
    sources = "; ".join(reading.source for reading in at_once.values())
    summary = f"{len(at_once)} paths reached {rate:g} Mbit/s at once and {alone_rate:g} Mbit/s alone ({sources})"
    return AtOnce(key, rate, rate < _CLEARLY_SLOWER * alone_rate, summary)
