"""Paths measured alone and at once. If they are slower at once, they share a link of their site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.readings import Reading

_CLEARLY_SLOWER = 0.9  # repeated measurements of one link differ by less
_APART_S = 2


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


def compare(site: str, alone: Iterable[Reading], at_once: Iterable[Reading]) -> list[AtOnce]:
    """Compare the rates of the paths of a site in each direction that was measured at once.

    Raises:
        SpecError: a path was not measured alone, the numbers of flows differ, or the paths were not measured at once.
    """
    alone, at_once = list(alone), list(at_once)
    found = []
    for key, back in (("up", False), ("down", True)):
        together = {reading.server: reading for reading in at_once if reading.back is back}
        by_server = {reading.server: reading for reading in alone if reading.back is back}
        if together:
            found.append(_sums(f"{site}, {key}", key, by_server, together))
    return found


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
    rate, alone_rate = (sum(each.rate_mbps or 0 for each in found) for found in (at_once.values(), each_alone))
    sources = "; ".join(reading.source for reading in at_once.values())
    summary = f"{len(at_once)} paths reached {rate:g} Mbit/s at once and {alone_rate:g} Mbit/s alone ({sources})"
    return AtOnce(key, rate, rate < _CLEARLY_SLOWER * alone_rate, summary)
