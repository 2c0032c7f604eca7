"""The network of an experiment: sites, and a path for every ordered pair of sites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from wanbench.netprofiles.errors import ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.impairments import EMPTY_BUFFER, RTT
from wanbench.netprofiles.path import EFFECTS, Pair, Path, Provenance, SamePaths, Site
from wanbench.netprofiles.units import Delay, Quantity, Rate, Size

Part = TypeVar("Part", Site, Path)
Scaled = Literal["payload scale", "rate_scale", "rtt_scale"]

# The values of sites and paths that a factor multiplies, and the note about it.
_SCALED: Mapping[Scaled, tuple[tuple[str, ...], str]] = {
    "payload scale": (("up", "down", "rate", "buffer"), "rates and buffers x {}, as the payload"),
    "rate_scale": (("up", "down", "rate"), "rates x {} (rate_scale)"),
    "rtt_scale": (("local_rtt", "delay", "jitter"), "RTTs and jitter x {} (rtt_scale)"),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Sites and the directed paths between them; `paths` is keyed by (source name, destination name).

    Raises:
        ProfileError: a name that cannot be printed; no site; a name or region used twice; a site whose buffer
            holds nothing; a path that is missing, stored under another pair, or between sites that the profile does not
            have.
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
        for site in self.sites:
            if site.buffer == Size(0):
                raise ProfileError(f"site {site.name}: {EMPTY_BUFFER}")
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
        return site.local_rtt if site is self.site(b) else Delay(self.path(a, b).delay.ns + self.path(b, a).delay.ns)

    def scaled(self, factor: float, what: Scaled = "payload scale") -> Profile:
        """Multiply some of the values by `factor`.

        payload scale: all rates and buffers. If messages are scaled too, every transfer takes the same time. Values
            keep their provenance, because this scales the unit and not the network.
        rate_scale: every rate, which becomes `given`. Explicit buffers stay the same.
        rtt_scale: every RTT, including local RTTs and jitter; they become `given`. A factor of 0 removes all delay.

        Raises:
            ProfileError: `factor` is not a number above zero, or a rate would be below 1 bit/s.
        """
        names, note = _SCALED[what]
        if not (math.isfinite(factor) and (factor > 0 or (factor == 0 and what == "rtt_scale"))):
            limit = "of zero or more" if what == "rtt_scale" else "above zero"
            raise ProfileError(f"{what} {factor} is invalid; expected a number {limit}")
        if factor == 1:
            return self

        def change(part: Part) -> Part:
            stated = {name: value for name in names if (value := getattr(part, name, None)) is not None}
            values: dict[str, Any] = {name: _times(value, factor) for name, value in stated.items()}
            if "jitter" in values:  # rounding to whole nanoseconds can raise it above a third of the delay
                values["jitter"] = min(values["jitter"], Delay(values["delay"].ns // 3))
            if what != "payload scale":
                values["provenance"] = _given(part.provenance, names, factor)
            return replace(part, **values)

        paths: Mapping[Pair, Path]
        if isinstance(self.paths, SamePaths):
            paths = self.paths.changed(change)
        else:
            paths = {pair: change(path) for pair, path in self.paths.items()}
        notes = (*self.notes, note.format(f"{factor:g}"))
        return replace(self, sites=tuple(map(change, self.sites)), paths=paths, notes=notes)

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
    buffer: Size | None = None,
    **effects: Quantity,
) -> Profile:
    """Make a network of `sites` sites `w0`, `w1`, ... with one worker each, all `rtt` apart.

    `rate` is each site's up and down rate, `buffer` that of its two queues; paths are unlimited. `effects`
    are other impairments of every path, by name: `jitter` (one way, per direction), `loss`, `loss_burst`.

    Raises:
        ProfileError: less than one site, or jitter above a third of the one-way delay.
    """
    if sites < 1:
        raise ProfileError(f"a uniform profile has {sites} sites; expected at least one")
    names = tuple(f"w{index}" for index in range(sites))
    given = Provenance("given", "the experiment")
    stated_of_sites = {"up": rate, "down": rate, "buffer": buffer}
    site_origin = dict.fromkeys((*(key for key, value in stated_of_sites.items() if value), "local_rtt"), given)
    stated = (effect.key for effect in EFFECTS if effect.always_stored or effect.key in effects)
    path_origin = dict.fromkeys((RTT.key, *stated), given)
    values: dict[str, Any] = dict(effects)
    like = Path("w0", "w1", Delay(rtt.ns // 2), **values, provenance=path_origin)
    return Profile(
        name="uniform",
        description=f"Sites of one worker each ({sites}), all {rtt} apart.",
        sites=tuple(Site(name, up=rate, down=rate, buffer=buffer, provenance=site_origin) for name in names),
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


def _times(value: Quantity, factor: float) -> Quantity:
    if isinstance(value, Size):
        return Size(max(1, round(value.bytes * factor)))
    try:
        return type(value)(round(value.plain * factor))
    except UnitError:
        raise ProfileError(f"a rate of {value} x {factor:g} is below 1 bit/s; expected a larger factor") from None


def _given(origin: Mapping[str, Provenance], names: tuple[str, ...], factor: float) -> dict[str, Provenance]:
    scaled = {
        key: Provenance("given", f"{factor:g} x {source.kind} value of: {source.source}")
        for key, source in origin.items()
        if key in names or (key == RTT.key and "delay" in names)
    }
    return {**origin, **scaled}


def _site_json(site: Site) -> dict[str, object]:
    return {
        "name": site.name,
        "region": site.region,
        "city": site.city,
        "up_bps": site.up.bps if site.up else None,
        "down_bps": site.down.bps if site.down else None,
        **({"buffer_bytes": site.buffer.bytes} if site.buffer else {}),  # profiles without one keep their digests
        "local_rtt_ns": site.local_rtt.ns,
    }


def _path_json(path: Path) -> dict[str, object]:
    return {
        "src": path.src,
        "dst": path.dst,
        **{
            impairment.plain: value.plain if value else None
            for impairment, value in path.values()
            if impairment.always_stored or (value and value.plain)
        },
    }
