"""The effect of a change on a network. Pure.

A rate changes the queues in which the profile has its rates: the site's `up` and `down` on a uniform profile, or if the
change names a site, else the paths. A factor scales every rate in its scope. Buffers keep their size in bytes.

Background traffic is constant and does not yield to other traffic: its rate is subtracted, and no packets are sent.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wanbench.harness.emulators.plan import EmulatedNetwork, Link, Queue, queue_of
from wanbench.harness.spec.timeline import LONGEST_S, TIME, TRACED, Point, ends_of
from wanbench.harness.timeline.changes import Change, rank_of
from wanbench.netprofiles import Delay, Packets, Profile, Rate, Ratio
from wanbench.netprofiles.errors import did_you_mean
from wanbench.netprofiles.impairments import LOSS, ONE_WAY, RTT, burst_problem
from wanbench.netprofiles.units import Quantity

Pair = tuple[int, int]
Value = Quantity | float
OF_WORKERS = ("slow", "kill")  # the changes of workers, not of the network
_NS_PER_MS, _MIN_DELAY_PER_JITTER = 1e6, 3
_BITS = 8
_BY_KEY = {value.key: value for value in TRACED.values()}
_FROM_COLUMN: Mapping[type[Quantity], Callable[[float], Quantity]] = {
    Delay: Delay.from_ms,
    Rate: Rate.from_mbit,
    Ratio: lambda percent: Ratio(percent / 100),
    Packets: Packets,
}


class TimelineError(ValueError):
    """A change does not fit the network. The message is one line."""


@dataclass(frozen=True)
class Scope:
    """What a change affects: workers, or sites and paths by site numbers.

    With `directed` it is only the paths, not the sites at their ends.
    """

    sites: tuple[int, ...] = ()
    pairs: tuple[Pair, ...] = ()
    directed: bool = False
    ranks: tuple[int, ...] = ()


def scope_of(where: str | int | None, network: EmulatedNetwork, profile: Profile) -> Scope:
    """Return the sites and directed paths that `where` names.

    Raises:
        TimelineError: there is no such site, path or worker, or the site has no worker.
    """
    if where is None:
        return Scope(tuple(range(len(network.sites))), tuple(sorted(network.links)))
    if isinstance(where, int):
        site = _site_of_worker(where, network)
    elif ends_of(where)[1] is not None:
        return _paths(where, network, profile)
    else:
        site = _site(where, network, profile)
    return Scope((site,), tuple(sorted(pair for pair in network.links if site in pair)))


def ranks_of(where: str | int | None, network: EmulatedNetwork, profile: Profile) -> tuple[int, ...]:
    """Return the workers that `where` names: one by its number, those of a site, or all. Raises: TimelineError."""
    if where is None:
        return tuple(range(network.workers))
    if isinstance(where, int):
        _check_rank(where, network)
        return (where,)
    site = _site(where, network, profile)
    return tuple(rank for rank, at in enumerate(network.site_of) if at == site)


def _paths(where: str, network: EmulatedNetwork, profile: Profile) -> Scope:
    first, arrow, second = ends_of(where)
    names, both = (first, second or ""), arrow == "<->"
    if not second or ("->" in second and second == _without_quotes(second)):
        raise TimelineError(f'where: expected a site, a worker\'s number, "a -> b" or "a <-> b", got {where!r}')
    ranks = [rank_of(name) for name in names]
    a, b = (
        _site(name, network, profile) if rank is None else _site_of_worker(rank, network)
        for name, rank in zip(names, ranks, strict=True)
    )
    if a == b:
        raise TimelineError(f"where: {where!r} is not a path; name two different sites")
    return Scope(pairs=((a, b), (b, a)) if both else ((a, b),), directed=True)


def _site(name: str, network: EmulatedNetwork, profile: Profile) -> int:
    name = _without_quotes(name)
    try:
        site = profile.site(name).name
    except ValueError:
        sites = f"; expected one of {', '.join(network.sites)}, or a worker's number"
        raise TimelineError(f"where: no site {name!r}{did_you_mean(name, network.sites) or sites}") from None
    if site not in network.sites:
        raise TimelineError(f"where: no worker is at {name!r}; expected one of {', '.join(network.sites)}")
    return network.sites.index(site)


def _without_quotes(name: str) -> str:
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


def _check_rank(rank: int, network: EmulatedNetwork) -> None:
    if rank >= network.workers:
        raise TimelineError(f"where: no worker {rank}; expected 0 to {network.workers - 1}")


def _site_of_worker(rank: int, network: EmulatedNetwork) -> int:
    _check_rank(rank, network)
    site = network.site_of[rank]
    if network.site_of.count(site) > 1:
        raise TimelineError(
            f"where: worker {rank} shares its network with other workers; name its site, {network.sites[site]!r}"
        )
    return site


# ---------------------------------------------------------------- edits

Edit = Callable[[EmulatedNetwork], EmulatedNetwork]


def edit_of(change: Change, point: Point | None, scope: Scope, *, uniform: bool, scale: float) -> Edit:
    """Return a function that applies `change`, or one line of its trace, to a network.

    Args:
        uniform: whether the profile is uniform.
        scale: factor on rates (`payload_scale`).

    The function raises TimelineError if the network has nothing that it could change, or cannot have the new value.
    Slow and killed workers do not change the network.
    """
    values = dict(_values(change, point))

    def edit(network: EmulatedNetwork) -> EmulatedNetwork:
        try:
            for kind, value in values.items():
                if kind == "traffic" and not isinstance(value, float):
                    network = _loaded(network, scope, value, scale)
                elif kind == "rate":
                    network = _rated(network, value, scope, uniform, scale)
                else:
                    network = _impaired(network, kind, value, scope)
        except (ValueError, OverflowError) as error:
            raise TimelineError(str(error)) from None
        return network

    return edit


def _values(change: Change, point: Point | None) -> Iterator[tuple[str, Value]]:
    """Yield what is changed, and its new value. A number is a factor."""
    if change.kind in OF_WORKERS:
        return
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
    """Check that no delay is too long, and jitter and bursts of loss as in profiles. Raises: TimelineError."""
    for (src, dst), link in network.links.items():
        if (problem := _problem(link)) is not None:
            raise TimelineError(f"{network.sites[src]} -> {network.sites[dst]}: {problem}")


def _problem(link: Link) -> str | None:
    jitter, delay = f"{link.jitter_ns / _NS_PER_MS:g} ms", f"{link.delay_ns / _NS_PER_MS:g} ms"
    if link.delay_ns > LONGEST_S * 1e9:
        return f"one-way delay {delay}; expected at most {LONGEST_S} s"
    if link.jitter_ns * _MIN_DELAY_PER_JITTER > link.delay_ns:
        return f"jitter {jitter} with one-way delay {delay}; expected at most a third"
    return burst_problem(link.loss, link.loss_burst) if link.loss < 1 else None


def _links(network: EmulatedNetwork, scope: Scope, make: Callable[[Link], Link]) -> EmulatedNetwork:
    if not scope.pairs:
        raise TimelineError("there is no path between sites that it could change; place workers at two sites or more")
    return dataclasses.replace(network, links={**network.links, **{p: make(network.links[p]) for p in scope.pairs}})


def _impaired(network: EmulatedNetwork, kind: str, value: Value, scope: Scope) -> EmulatedNetwork:
    """Change the delay or another impairment."""
    name = "delay_ns" if kind in (RTT.key, ONE_WAY.key) else _BY_KEY[kind].plain

    def make(link: Link) -> Link:
        if isinstance(value, float):
            plain: Any = round(getattr(link, name) * value)
        else:
            plain = value.plain // 2 if kind == RTT.key else value.plain
        return dataclasses.replace(link, **{name: plain})

    return _links(network, scope, make)


def _rated(network: EmulatedNetwork, value: Value, scope: Scope, uniform: bool, scale: float) -> EmulatedNetwork:
    if isinstance(value, float):
        return _limits(network, scope, lambda per_s: per_s * value, "a factor needs a rate limit")
    per_s = value.plain / _BITS * scale
    if scope.directed or not (uniform or len(scope.sites) == 1):
        return _links(network, scope, lambda link: dataclasses.replace(link, queue=_at(link.queue, per_s, link)))
    slowest = max(network.links.values(), key=lambda link: link.delay_ns, default=None)
    chosen = set(scope.sites)

    def ends(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        return tuple(_at(queue, per_s, slowest) if site in chosen else queue for site, queue in enumerate(queues))

    return dataclasses.replace(network, up=ends(network.up), down=ends(network.down))


def _at(queue: Queue, per_s: float, link: Link | None) -> Queue:
    """Change the rate of a queue. It keeps its buffer. If it was unlimited, it gets a buffer of one round trip."""
    if queue.rate_bytes_per_s is not None:
        return Queue(per_s, queue.buffer_bytes)
    return queue_of(per_s, 0.0 if link is None else 2 * link.delay_ns / 1e9)


def _limits(network: EmulatedNetwork, scope: Scope, make: Callable[[float], float], why: str) -> EmulatedNetwork:
    """Change every rate in a scope. Raises: TimelineError, which begins with `why`, if there is none."""
    sites, pairs = set(scope.sites), set(scope.pairs)
    ends = [queues[site] for queues in (network.up, network.down) for site in sites]
    if all(queue.rate_bytes_per_s is None for queue in [*ends, *(network.links[pair].queue for pair in pairs)]):
        raise TimelineError(f"{why}, and this place has none; name another place, or set a rate there first")

    def changed(queue: Queue, here: bool) -> Queue:
        if queue.rate_bytes_per_s is None or not here:
            return queue
        return Queue(make(queue.rate_bytes_per_s), queue.buffer_bytes)

    up = tuple(changed(queue, site in sites) for site, queue in enumerate(network.up))
    down = tuple(changed(queue, site in sites) for site, queue in enumerate(network.down))
    links = {
        pair: dataclasses.replace(link, queue=changed(link.queue, pair in pairs))
        for pair, link in network.links.items()
    }
    return dataclasses.replace(network, up=up, down=down, links=links)


def _loaded(network: EmulatedNetwork, scope: Scope, value: Quantity, scale: float) -> EmulatedNetwork:
    taken = value.plain / _BITS * scale

    def less(per_s: float) -> float:
        if taken >= per_s:
            mbit, limit = taken * _BITS / 1e6, per_s * _BITS / 1e6
            raise TimelineError(f"traffic of {mbit:g} Mbit/s needs the whole rate of {limit:g} Mbit/s; expected less")
        return per_s - taken

    return _limits(network, scope, less, "background traffic needs a rate limit to share")
