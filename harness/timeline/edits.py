"""What a change makes of a network: pure.

A rate belongs where the profile has it. On a uniform profile, and where a change names a site, those are the site's
`up` and `down`; elsewhere, the paths. A factor scales every rate there is at the place. Buffers keep their bytes.

Background traffic is constant and does not yield: its rate is taken off, and its packets are not sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wanbench.harness.emulators.plan import EmulatedNetwork, Link, Queue, queue_of
from wanbench.harness.spec.trace import LONGEST_S, TIME, TRACED, Point
from wanbench.harness.timeline.changes import Change, rank_of
from wanbench.netprofiles import Delay, Profile, Rate, Ratio
from wanbench.netprofiles.errors import did_you_mean
from wanbench.netprofiles.impairments.delay import ONE_WAY, RTT
from wanbench.netprofiles.impairments.loss import LOSS
from wanbench.netprofiles.units import Quantity

Pair = tuple[int, int]
Value = Quantity | float
_NS_PER_MS, _MOST_JITTER = 1e6, 3
_BITS = 8
_BY_KEY = {each.key: each for each in TRACED.values()}
_FROM_COLUMN: Mapping[type[Quantity], Callable[[float], Quantity]] = {
    Delay: Delay.from_ms,
    Rate: Rate.from_mbit,
    Ratio: lambda percent: Ratio(percent / 100),
}


class TimelineError(ValueError):
    """A change that this network cannot have. One line."""


@dataclass(frozen=True)
class Place:
    """Where a change holds, by site numbers. `directed`: paths alone are meant, not the sites at their ends."""

    sites: tuple[int, ...]
    pairs: tuple[Pair, ...]
    directed: bool = False


def place_of(where: str | int | None, network: EmulatedNetwork, profile: Profile) -> Place:
    """The sites and directed paths that `where` names.

    Raises:
        TimelineError: there is no such site, path or worker, or nobody works there.
    """
    if where is None:
        return Place(tuple(range(len(network.sites))), tuple(sorted(network.links)))
    if isinstance(where, int):
        site = _site_of_worker(where, network)
    elif "->" in where:
        return _paths(where, network, profile)
    else:
        site = _site(where, network, profile)
    return Place((site,), tuple(sorted(pair for pair in network.links if site in pair)))


def ranks_of(where: str | int | None, network: EmulatedNetwork, profile: Profile) -> tuple[int, ...]:
    """The workers that `where` names: one by its number, those of a site, or all. Raises: TimelineError."""
    if where is None:
        return tuple(range(network.workers))
    if isinstance(where, int):
        _check_rank(where, network)
        return (where,)
    site = _site(where, network, profile)
    return tuple(rank for rank, at in enumerate(network.site_of) if at == site)


def _paths(where: str, network: EmulatedNetwork, profile: Profile) -> Place:
    both = "<->" in where
    names = [name.strip() for name in where.split("<->" if both else "->")]
    if len(names) != 2:
        raise TimelineError(f'where: expected a site, a worker\'s number, "a -> b" or "a <-> b", got {where!r}')
    ranks = [rank_of(name) for name in names]
    a, b = (
        _site(name, network, profile) if rank is None else _site_of_worker(rank, network)
        for name, rank in zip(names, ranks, strict=True)
    )
    if a == b:
        raise TimelineError(f"where: {where!r} is no path; name two different sites")
    return Place((), ((a, b), (b, a)) if both else ((a, b),), directed=True)


def _site(name: str, network: EmulatedNetwork, profile: Profile) -> int:
    try:
        known = profile.site(name).name
    except ValueError:
        raise TimelineError(f"where: no site {name!r}{_hint(name, network)}") from None
    if known not in network.sites:
        raise TimelineError(f"where: no worker sits at {name!r}; they sit at {', '.join(network.sites)}")
    return network.sites.index(known)


def _hint(name: str, network: EmulatedNetwork) -> str:
    return did_you_mean(name, network.sites) or f"; expected one of {', '.join(network.sites)}, or a worker's number"


def _check_rank(rank: int, network: EmulatedNetwork) -> None:
    if rank >= network.workers:
        raise TimelineError(f"where: no worker {rank}; they are numbered 0 to {network.workers - 1}")


def _site_of_worker(rank: int, network: EmulatedNetwork) -> int:
    _check_rank(rank, network)
    site = network.site_of[rank]
    if network.site_of.count(site) > 1:
        raise TimelineError(
            f"where: worker {rank} shares its network with others; name its site, {network.sites[site]!r}"
        )
    return site


# ---------------------------------------------------------------- edits

Edit = Callable[[EmulatedNetwork], EmulatedNetwork]


def edit_of(change: Change, point: Point | None, place: Place, *, uniform: bool, scale: float) -> Edit:
    """What makes the network of `change`, of one line of it for a trace, out of another.

    Args:
        uniform: the profile is. scale: of rates (`payload_scale`).

    The edit raises TimelineError where the network has nothing that it could change.
    """
    values = dict(_values(change, point))

    def edit(network: EmulatedNetwork) -> EmulatedNetwork:
        for kind, value in values.items():
            if kind == "traffic" and not isinstance(value, float):
                network = _loaded(network, place, value, scale)
            elif kind == "rate":
                network = _rated(network, value, place, uniform, scale)
            else:
                network = _impaired(network, kind, value, place)
        return network

    return edit


def _values(change: Change, point: Point | None) -> Iterator[tuple[str, Value]]:
    """What is changed, and to what; a number is a factor."""
    if change.kind == "cut":
        yield LOSS.key, Ratio(1.0)
    elif point is not None:
        for column, number in point.items():
            if column != TIME:
                yield TRACED[column].key, _FROM_COLUMN[TRACED[column].unit](number)
    else:
        unit = Rate if change.kind == "traffic" else _BY_KEY[change.kind].unit
        yield change.kind, unit.parse(change.value) if isinstance(change.value, str) else float(change.value)


def check_plausible(network: EmulatedNetwork) -> None:
    """Jitter is at most a third of the delay, as in a profile, and no delay too long. Raises: TimelineError."""
    for (src, dst), link in network.links.items():
        too_long, too_uneven = link.delay_ns > LONGEST_S * 1e9, link.jitter_ns * _MOST_JITTER > link.delay_ns
        if not too_long and not too_uneven:
            continue
        path = f"{network.sites[src]} -> {network.sites[dst]}"
        jitter, delay = f"{link.jitter_ns / _NS_PER_MS:g} ms", f"{link.delay_ns / _NS_PER_MS:g} ms"
        if too_long:
            raise TimelineError(f"{path}: a one-way delay of {delay}; expected at most {LONGEST_S} s")
        raise TimelineError(f"{path}: jitter {jitter} with a one-way delay of {delay}; expected at most a third")


def _links(network: EmulatedNetwork, place: Place, make: Callable[[Link], Link]) -> EmulatedNetwork:
    if not place.pairs:
        raise TimelineError("there is no path between sites to change")
    return dataclasses.replace(network, links={**network.links, **{p: make(network.links[p]) for p in place.pairs}})


def _impaired(network: EmulatedNetwork, kind: str, value: Value, place: Place) -> EmulatedNetwork:
    """With another delay, or another of the effects."""
    name = "delay_ns" if kind in (RTT.key, ONE_WAY.key) else _BY_KEY[kind].plain

    def make(link: Link) -> Link:
        if isinstance(value, float):
            plain: Any = round(getattr(link, name) * value)
        else:
            plain = value.plain // 2 if kind == RTT.key else value.plain
        return dataclasses.replace(link, **{name: plain})

    return _links(network, place, make)


def _rated(network: EmulatedNetwork, value: Value, place: Place, uniform: bool, scale: float) -> EmulatedNetwork:
    if isinstance(value, float):
        return _limits(network, place, lambda per_s: per_s * value, "a factor needs a rate")
    per_s = value.plain / _BITS * scale
    if place.directed or not (uniform or len(place.sites) == 1):
        return _links(network, place, lambda link: dataclasses.replace(link, queue=_at(link.queue, per_s, link)))
    slowest = max(network.links.values(), key=lambda link: link.delay_ns, default=None)
    chosen = set(place.sites)

    def ends(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        return tuple(_at(queue, per_s, slowest) if site in chosen else queue for site, queue in enumerate(queues))

    return dataclasses.replace(network, up=ends(network.up), down=ends(network.down))


def _at(queue: Queue, per_s: float, link: Link | None) -> Queue:
    """With another rate; the buffer stays, and one that was not needed before is that of a round trip."""
    if queue.rate_bytes_per_s is not None:
        return Queue(per_s, queue.buffer_bytes)
    return queue_of(per_s, 0.0 if link is None else 2 * link.delay_ns / 1e9)


def _limits(network: EmulatedNetwork, place: Place, make: Callable[[float], float], why: str) -> EmulatedNetwork:
    """Every rate there is at a place."""
    found = False

    def changed(queue: Queue, here: bool) -> Queue:
        nonlocal found
        if queue.rate_bytes_per_s is None or not here:
            return queue
        found = True
        return Queue(make(queue.rate_bytes_per_s), queue.buffer_bytes)

    sites, pairs = set(place.sites), set(place.pairs)
    up = tuple(changed(queue, site in sites) for site, queue in enumerate(network.up))
    down = tuple(changed(queue, site in sites) for site, queue in enumerate(network.down))
    links = {
        pair: dataclasses.replace(link, queue=changed(link.queue, pair in pairs))
        for pair, link in network.links.items()
    }
    if not found:
        raise TimelineError(f"{why}, and nothing there has one; name a place that has, or set a rate first")
    return dataclasses.replace(network, up=up, down=down, links=links)


def _loaded(network: EmulatedNetwork, place: Place, value: Quantity, scale: float) -> EmulatedNetwork:
    taken = value.plain / _BITS * scale

    def less(per_s: float) -> float:
        if taken >= per_s:
            mbit, of = taken * _BITS / 1e6, per_s * _BITS / 1e6
            raise TimelineError(f"traffic of {mbit:g} Mbit/s leaves nothing of {of:g} Mbit/s; expected less")
        return per_s - taken

    return _limits(network, place, less, "background traffic needs a rate to share")
