"""The network of an experiment: sites, and a path for every ordered pair of sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wanbench.netprofiles.errors import ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.impairments.delay import RTT
from wanbench.netprofiles.path import EFFECTS, Pair, Path, Provenance, SamePaths, Site
from wanbench.netprofiles.units import Delay, Quantity, Rate, Size


@dataclass(frozen=True, slots=True)
class Profile:
    """Sites and the directed paths between them; `paths` is keyed by (source name, destination name).

    Raises:
        ProfileError: a name that cannot be printed; no site; a name or region used twice; a path that is missing,
            stored under another pair, or between sites that the profile does not have.
    """

    name: str
    description: str
    sites: tuple[Site, ...]
    paths: Mapping[Pair, Path]
    notes: tuple[str, ...] = ()
    _by_alias: dict[str, Site] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name.isprintable():
            raise ProfileError(f"name {self.name!r}: expected one that can be printed, in one line")
        if not self.sites:
            raise ProfileError(f"profile {self.name!r} has no site; expected at least one")
        object.__setattr__(self, "_by_alias", _by_alias(self.sites))
        if not (isinstance(self.paths, SamePaths) and self.paths.joins(site.name for site in self.sites)):
            _check_complete(self.paths, dict.fromkeys(site.name for site in self.sites))

    def site(self, name: str) -> Site:
        """Return the site with a name or region code. Raises: ProfileError if there is none."""
        if name not in self._by_alias:
            listed = f" ({', '.join(s.name for s in self.sites)})" if len(self.sites) <= 12 else ""
            near = did_you_mean(name, self._by_alias)
            raise ProfileError(f"profile {self.name!r} has no site {name!r}{listed}{near}")
        return self._by_alias[name]

    def path(self, src: str, dst: str) -> Path:
        """Return the directed path from one site to another, by name or region code.

        Raises:
            ProfileError: an unknown site, or both are the same site.
        """
        pair = (self.site(src).name, self.site(dst).name)
        if pair[0] == pair[1]:
            raise ProfileError(f"no path {src} -> {dst}: both are the same site; expected two, or use its local_rtt")
        return self.paths[pair]

    def rtt(self, a: str, b: str) -> Delay:
        """Round-trip time: the sum of the one-way delays, or the `local_rtt` inside one site."""
        site = self.site(a)
        if site is self.site(b):
            return site.local_rtt
        return Delay(self.path(a, b).delay.ns + self.path(b, a).delay.ns)

    def max_rtt(self) -> Delay:
        """The longest round trip between two sites; with a single site, its `local_rtt`."""
        if isinstance(self.paths, SamePaths):
            return Delay(2 * self.paths.like.delay.ns) if self.paths else self.sites[0].local_rtt
        return max((self.rtt(a, b) for a, b in self.paths), default=self.sites[0].local_rtt)

    def scaled(self, factor: float) -> Profile:
        """Multiply all rates and buffers by `factor`. If messages are scaled too, every transfer takes the same time.

        Values keep their provenance, because this scales the unit and not the network.

        Raises:
            ProfileError: `factor` is not a number above zero.
        """
        _check_factor("payload scale", factor, above_zero=True)
        if factor == 1:
            return self
        return self._changed(
            lambda site: replace(site, up=_rate(site.up, factor), down=_rate(site.down, factor)),
            lambda path: replace(path, rate=_rate(path.rate, factor), buffer=_size(path.buffer, factor)),
            f"rates and buffers x {factor:g}, as the payload",
        )

    def with_rate_scale(self, factor: float) -> Profile:
        """Multiply every rate by `factor`. Explicit buffers stay the same; rates become `given`.

        Raises:
            ProfileError: `factor` is not a number above zero.
        """
        _check_factor("rate_scale", factor, above_zero=True)
        if factor == 1:
            return self

        def site_of(site: Site) -> Site:
            origin = _given(site.provenance, ("up", "down"), factor)
            return replace(site, up=_rate(site.up, factor), down=_rate(site.down, factor), provenance=origin)

        def path_of(path: Path) -> Path:
            origin = _given(path.provenance, ("rate",), factor)
            return replace(path, rate=_rate(path.rate, factor), provenance=origin)

        return self._changed(site_of, path_of, f"rates x {factor:g} (rate_scale)")

    def with_rtt_scale(self, factor: float) -> Profile:
        """Multiply every RTT by `factor`, including local RTTs and jitter.

        The scaled values become `given`. A factor of 0 removes all delay.

        Raises:
            ProfileError: `factor` is negative or not a number.
        """
        _check_factor("rtt_scale", factor, above_zero=False)
        if factor == 1:
            return self

        def site_of(site: Site) -> Site:
            origin = _given(site.provenance, ("local_rtt",), factor)
            return replace(site, local_rtt=_delay(site.local_rtt, factor), provenance=origin)

        def path_of(path: Path) -> Path:
            delay = _delay(path.delay, factor)
            # Rounding to whole nanoseconds can raise jitter above a third of the delay.
            jitter = min(_delay(path.jitter, factor), Delay(delay.ns // 3))
            origin = _given(path.provenance, ("rtt", "jitter"), factor)
            return replace(path, delay=delay, jitter=jitter, provenance=origin)

        return self._changed(site_of, path_of, f"RTTs and jitter x {factor:g} (rtt_scale)")

    def _changed(self, site: Callable[[Site], Site], path: Callable[[Path], Path], note: str) -> Profile:
        paths: Mapping[Pair, Path]
        if isinstance(self.paths, SamePaths):
            paths = self.paths.changed(path)
        else:
            paths = {pair: path(each) for pair, each in self.paths.items()}
        sites = tuple(site(each) for each in self.sites)
        return replace(self, sites=sites, paths=paths, notes=(*self.notes, note))

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values, in a fixed order. Each source is listed once and referred to by its index."""
        numbers: dict[str, int] = {}

        def origin(provenance: Mapping[str, Provenance]) -> dict[str, list[object]]:
            return {key: [p.kind, numbers.setdefault(p.source, len(numbers))] for key, p in sorted(provenance.items())}

        sites = [{**_site_json(site), "provenance": origin(site.provenance)} for site in self.sites]
        paths = [{**_path_json(path), "provenance": origin(path.provenance)} for _, path in sorted(self.paths.items())]
        return {
            "name": self.name,
            "description": self.description,
            "notes": list(self.notes),
            "sites": sites,
            "paths": paths,
            "sources": list(numbers),
        }


def uniform(
    sites: int,
    rtt: Delay,
    rate: Rate | None = None,
    **effects: Quantity,
) -> Profile:
    """Make a network of `sites` sites `w0`, `w1`, ... with one worker each, all `rtt` apart.

    `rate` is each site's up and down rate; paths are unlimited. `effects` are other impairments of every path, by name:
    `jitter` (one way, per direction), `loss`, `loss_burst`.

    Raises:
        ProfileError: less than one site, or jitter above a third of the one-way delay.
    """
    if sites < 1:
        raise ProfileError(f"a uniform profile has {sites} sites; expected at least one")
    names = tuple(f"w{index}" for index in range(sites))
    given = Provenance("given", "the experiment")
    site_origin = dict.fromkeys(("up", "down", "local_rtt") if rate else ("local_rtt",), given)
    stated = (effect.key for effect in EFFECTS if effect.always_stored or effect.key in effects)
    path_origin = dict.fromkeys((RTT.key, *stated), given)
    others: dict[str, Any] = dict(effects)
    like = Path("w0", "w1", Delay(rtt.ns // 2), **others, provenance=path_origin)
    return Profile(
        name="uniform",
        description=f"Sites of one worker each ({sites}), all {rtt} apart.",
        sites=tuple(Site(name, up=rate, down=rate, provenance=site_origin) for name in names),
        paths=SamePaths(names, like),
    )


def _by_alias(sites: Iterable[Site]) -> dict[str, Site]:
    by_alias: dict[str, Site] = {}
    for site in sites:
        for alias in site.aliases:
            if alias in by_alias:
                raise ProfileError(f"{alias!r} names two sites; names and regions must be distinct")
            by_alias[alias] = site
    return by_alias


def _check_complete(paths: Mapping[Pair, Path], names: Mapping[str, None]) -> None:
    for (src, dst), path in paths.items():
        if (path.src, path.dst) != (src, dst):
            raise ProfileError(f"path {path.src} -> {path.dst} is stored as {src} -> {dst}; expected its own pair")
        for end in (src, dst):
            if end not in names:
                near = did_you_mean(end, names)
                raise ProfileError(f"path {src} -> {dst}: unknown site {end!r}{near}")
    for src in names:
        for dst in names:
            if src != dst and (src, dst) not in paths:
                raise ProfileError(f"no path {src} -> {dst}; every ordered pair of sites needs one")


def _check_factor(what: str, factor: float, *, above_zero: bool) -> None:
    if not (math.isfinite(factor) and (factor > 0 or (factor == 0 and not above_zero))):
        limit = "above zero" if above_zero else "of zero or more"
        raise ProfileError(f"{what} {factor} is invalid; expected a number {limit}")


def _delay(delay: Delay, factor: float) -> Delay:
    return Delay(round(delay.ns * factor))


def _rate(rate: Rate | None, factor: float) -> Rate | None:
    if rate is None:
        return None
    try:
        return Rate(round(rate.bps * factor))
    except UnitError:
        raise ProfileError(f"a rate of {rate} x {factor:g} is below 1 bit/s; expected a larger factor") from None


def _size(size: Size | None, factor: float) -> Size | None:
    return None if size is None else Size(max(1, round(size.bytes * factor)))


def _given(origin: Mapping[str, Provenance], keys: tuple[str, ...], factor: float) -> dict[str, Provenance]:
    scaled = {
        key: Provenance("given", f"{factor:g} x {origin[key].kind} value of: {origin[key].source}")
        for key in keys
        if key in origin
    }
    return {**origin, **scaled}


def _site_json(site: Site) -> dict[str, object]:
    return {
        "name": site.name,
        "region": site.region,
        "city": site.city,
        "up_bps": site.up.bps if site.up else None,
        "down_bps": site.down.bps if site.down else None,
        "local_rtt_ns": site.local_rtt.ns,
    }


def _path_json(path: Path) -> dict[str, object]:
    return {
        "src": path.src,
        "dst": path.dst,
        **{
            each.plain: value.plain if value else None
            for each, value in path.values()
            if each.always_stored or (value and value.plain)
        },
    }
