"""The profile file of what was measured, each value with its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.readings import Reading
from wanbench.harness.measure.shared import AtOnce, compare
from wanbench.netprofiles import Rate, toml_text

Pair = tuple[str, str]


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
    notes = [note for site, found in shared.items() for note in _notes(site, found, stated.get(site, {}))]
    notes += [
        f"{src} -> {dst}: the loss is unknown, so the path has none ({pings[-1].source})."
        for (src, dst), readings in paths.items()
        if (pings := [each for each in readings if each.rtt_ms is not None])
        and all(each.loss_pct is None for each in pings)
    ]
    site_lines = [_site(site, stated.get(site, {}), shared.get(site, ()), sources) for site in sites]
    complete = ((pair, [*readings, *_round_trips(pair, paths)]) for pair, readings in paths.items())
    path_lines = [_path(pair, readings, sources) for each in complete for pair, readings in _ways(*each)]
    return "\n".join(
        [
            "schema = 1",
            f"name = {toml_text.value(name)}",
            f"description = {toml_text.value('Measured between ' + ', '.join(sites) + '.')}",
            *(["notes = [", *(f"  {toml_text.value(note)}," for note in notes), "]"] if notes else []),
            "",
            "sites = [",
            *site_lines,
            "]",
            "",
            "# A path in one direction is for both. One way takes half of the round trip.",
            "# If a share p of the round trips is lost, one way loses 1 - sqrt(1 - p) of the packets.",
            "paths = [",
            *path_lines,
            "]",
            "",
            "[sources]",
            *(f"{tag} = {toml_text.value(source)}" for source, tag in sources.items()),
            "",
        ]
    )


def _alone(site: str, paths: Mapping[Pair, Sequence[Reading]]) -> Iterator[Reading]:
    return (each for (src, _), readings in paths.items() if src == site for each in readings if each.rate_mbps)


def _round_trips(pair: Pair, paths: Mapping[Pair, Sequence[Reading]]) -> list[Reading]:
    """The pings in the other direction, if this one has none: a round trip is the same from both ends."""
    if any(each.rtt_ms is not None for each in paths[pair]):
        return []
    return [each for each in paths.get(pair[::-1], ()) if each.rtt_ms is not None]


def _ways(pair: Pair, readings: Sequence[Reading]) -> Iterator[tuple[Pair, list[Reading]]]:
    """The readings for each direction; a single entry if they do not tell the directions apart."""
    rates = [reading for reading in readings if reading.rate_mbps is not None]
    if len({reading.back for reading in rates}) < 2:
        yield pair, list(readings)
        return
    for way, back in ((pair, False), (pair[::-1], True)):
        yield way, [reading for reading in readings if reading.rate_mbps is None or reading.back is back]


def _notes(site: str, found: Iterable[AtOnce], stated: Mapping[str, Rate]) -> Iterator[str]:
    for each in found:
        if each.key in stated:
            yield f"{site}, {each.key}: the rate is stated; {each.summary}."
        elif not each.shared:
            yield f"{site}, {each.key}: no shared link was seen; {each.summary}."


def _site(site: str, stated: Mapping[str, Rate], found: Iterable[AtOnce], sources: dict[str, str]) -> str:
    cells = [f"name = {toml_text.value(site)}", *(f'{key} = "{rate}"' for key, rate in stated.items())]
    for each in found:
        if each.shared and each.key not in stated:
            cells += _measured(each.key, f"{each.rate_mbps:g}Mbit", each.summary, sources)
    return f"  {{ {', '.join(cells)} }},"


def _path(pair: Pair, found: Sequence[Reading], sources: dict[str, str]) -> str:
    cells = [f"src = {toml_text.value(pair[0])}", f"dst = {toml_text.value(pair[1])}"]
    for key, attribute, unit in (
        ("rtt", "rtt_ms", "ms"),
        ("jitter", "jitter_ms", "ms"),
        ("loss", "loss_pct", "%"),
        ("rate", "rate_mbps", "Mbit"),
    ):
        measured = [reading for reading in found if getattr(reading, attribute) is not None]
        last = measured[-1] if measured else None
        if last is not None and (key != "loss" or last.loss_pct):  # no lost ping is only an upper bound
            cells += _measured(key, f"{getattr(last, attribute):g}{unit}", last.source, sources)
        elif key == "rtt":
            raise SpecError(f"{pair[0]},{pair[1]}: no round-trip time; add output of ping")
    return f"  {{ {', '.join(cells)} }},"


def _measured(key: str, value: str, source: str, sources: dict[str, str]) -> list[str]:
    tag = sources.setdefault(source, f"s{len(sources) + 1}")
    return [f'{key} = "{value}"', f'{key}_standing = "measured"', f'{key}_source = "{tag}"']
