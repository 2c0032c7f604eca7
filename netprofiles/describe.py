"""Describe a profile: one row per site and path, and a compact page of text."""

import statistics
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.netprofiles.impairments import BUFFER, RTT, Impairment
from wanbench.netprofiles.path import IMPAIRMENTS, STATED, STATED_OF_SITES, Path, Provenance, Site
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import Delay, Quantity

_WIDTH = 100
# The widest matrix that fits the page, with room for names.
_MATRIX_SITES = 8


def describe(profile: Profile) -> list[dict[str, Any]]:
    """Return one row per site, then one per directed path. All rows have the same keys; None if not applicable.

    `standing` and `source` map the name of each value that is set to its provenance and its source. The `rtt_ms`
    of a site is its local round trip; the `rtt_ms` of a path is the round trip over it and the path back.
    """
    rows = [_site_row(site) for site in profile.sites]
    rows += [_path_row(path, profile.rtt(path.src, path.dst)) for path in profile.paths.values()]
    return rows


def render(profile: Profile) -> str:
    """The profile as text: sites, round trips, the range and provenance of each value, notes and sources."""
    sources: dict[str, int] = {}
    parts = [
        f"{profile.name}: {profile.description}",
        _sites(profile),
        _matrices(profile) if len(profile.sites) <= _MATRIX_SITES else _quantiles(profile),
        _ranges(profile, sources),
        "\n".join(["Notes", *(_item("-", note) for note in profile.notes)]) if profile.notes else "",
        "\n".join(["Sources", *(_item(f"[{n}]", text) for text, n in sources.items())]) if sources else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _site_row(site: Site) -> dict[str, Any]:
    return {
        "kind": "site",
        "src": site.name,
        "dst": None,
        "region": site.region,
        "city": site.city,
        "up_mbps": site.up.mbit if site.up else None,
        "down_mbps": site.down.mbit if site.down else None,
        **dict.fromkeys(impairment.column for impairment in (RTT, *IMPAIRMENTS.values())),
        BUFFER.column: site.buffer.shown if site.buffer else None,
        "rtt_ms": site.local_rtt.ms,
        **_origin(site.provenance),
    }


def _path_row(path: Path, rtt: Delay) -> dict[str, Any]:
    return {
        "kind": "path",
        "src": path.src,
        "dst": path.dst,
        "region": None,
        "city": None,
        "up_mbps": None,
        "down_mbps": None,
        "rtt_ms": rtt.ms,
        **{impairment.column: value.shown if value else None for impairment, value in path.values()},
        **_origin(path.provenance),
    }


def _origin(provenance: Mapping[str, Provenance]) -> dict[str, dict[str, str]]:
    return {
        "standing": {key: origin.kind for key, origin in provenance.items()},
        "source": {key: origin.source for key, origin in provenance.items()},
    }


def _sites(profile: Profile) -> str:
    buffers = ["buffer"] if any(site.buffer for site in profile.sites) else []
    rows = [["site", "region", "city", "up", "down", *buffers, "local RTT"]]
    for site in profile.sites:
        rates = [str(rate) if rate else "unlimited" for rate in (site.up, site.down)]
        held = [str(site.buffer) if site.buffer else "one round trip" for _ in buffers]
        rows.append([site.name, site.region or "-", site.city or "-", *rates, *held, str(site.local_rtt)])
    return _table(rows)


def _matrices(profile: Profile) -> str:
    """Round trips, and each value that differs between paths, from the site of a line to that of a column."""
    names = [site.name for site in profile.sites]
    tables = [[["RTT in ms", *names], *([a, *(f"{round(profile.rtt(a, b).ms, 2):g}" for b in names)] for a in names)]]
    for stated in STATED:
        values = {key: str(_path_value(profile, path, stated) or "-") for key, path in profile.paths.items()}
        if stated is not RTT and len(set(values.values())) > 1:
            tables.append(
                [[f"{stated.title}, to", *names], *([a, *(values.get((a, b), "") for b in names)] for a in names)]
            )
    return "\n\n".join(_table(table, right=True) for table in tables)


def _quantiles(profile: Profile) -> str:
    names = [site.name for site in profile.sites]
    pairs = sorted((profile.rtt(a, b).ms, f"{a} - {b}") for i, a in enumerate(names) for b in names[i + 1 :])
    tenths = statistics.quantiles((rtt for rtt, _ in pairs), n=10, method="inclusive")
    return _table(
        [
            [f"RTT over {len(pairs)} pairs of {len(names)} sites", "ms", "between"],
            ["smallest", f"{pairs[0][0]:.2f}", pairs[0][1]],
            ["10 % are below", f"{tenths[0]:.2f}", ""],
            ["median", f"{tenths[4]:.2f}", ""],
            ["90 % are below", f"{tenths[8]:.2f}", ""],
            ["largest", f"{pairs[-1][0]:.2f}", pairs[-1][1]],
        ]
    )


def _ranges(profile: Profile, sources: dict[str, int]) -> str:
    """The range of each value, one line per provenance. Numbers the sources in order of appearance."""
    rows = [["value", "range", "provenance", "source"]]
    for stated in STATED_OF_SITES:
        of_sites = ((getattr(s, stated.key), s.provenance.get(stated.key)) for s in profile.sites)
        rows += _range_rows(stated.title, of_sites, sources)
    for stated in STATED:
        of_paths = ((_path_value(profile, p, stated), p.provenance.get(stated.key)) for p in profile.paths.values())
        rows += _range_rows(stated.title, of_paths, sources)
    return _table(rows)


def _path_value(profile: Profile, path: Path, impairment: Impairment) -> Quantity | None:
    return profile.rtt(path.src, path.dst) if impairment is RTT else dict(path.values())[impairment]


def _range_rows(
    title: str, values: Iterable[tuple[Quantity | None, Provenance | None]], sources: dict[str, int]
) -> list[list[str]]:
    groups: dict[Provenance | None, list[Any]] = {}
    for value, origin in values:
        if value is not None:
            groups.setdefault(origin, []).append(value)
    rows = []
    for origin, group in groups.items():
        low, high = min(group), max(group)
        span = str(low) if low == high else f"{low} .. {high}"
        if origin is None:
            rows.append([title, span, "-", "-"])
        else:
            number = sources.setdefault(origin.source, len(sources) + 1)
            rows.append([title, span, origin.kind, f"[{number}]"])
    return rows


def _item(mark: str, text: str) -> str:
    head = f"  {mark} "
    return textwrap.fill(text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False)


def _table(rows: list[list[str]], *, right: bool = False) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0])]
        cells += [c.rjust(w) if right else c.ljust(w) for c, w in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
