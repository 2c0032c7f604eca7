"""wanbench measure"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.cli.options import named
from wanbench.harness.errors import HostError, SpecError

if TYPE_CHECKING:
    from wanbench.harness.measure.readings import Reading
    from wanbench.netprofiles import Rate

_HOST = re.compile(r"[\w.:][\w.:%-]*")  # never an option of ping or iperf3
_FORM = "expected SRC,DST=FILE, SRC,DST@HOST or SRC=FILE"

Pair = tuple[str, str]


@click.command("measure")
@click.argument("sources", nargs=-1, required=True, metavar="SRC,DST=FILE|SRC,DST@HOST|SRC=FILE...")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@click.option("--rate", is_flag=True, help="Also measure the rates to live hosts, which must run `iperf3 -s`.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 128),
    default=8,
    show_default=True,
    metavar="N",
    help="Flows to each host with --rate. On a long path the window limits the rate of one flow.",
)
@click.option(
    "--site",
    "sites",
    multiple=True,
    metavar="SITE=up:RATE,down:RATE",
    help="State a rate that all paths of a site share, e.g. onprem=up:400Mbit. Repeatable.",
)
def command(sources: tuple[str, ...], output: Path, rate: bool, parallel: int, sites: tuple[str, ...]) -> None:
    """Write a profile from measurements between sites, each value with its source.

    SRC,DST=FILE reads the output of `ping` or the JSON of `iperf3 -J`, measured from a machine at SRC to one at DST.
    Several files may describe the same pair. SRC,DST@HOST pings HOST, which is at DST, from this machine, which is at
    SRC. --rate measures the rates to and from each HOST alone, and then all at once. If their sum is more than 10 %
    lower at once, the paths share a link: the sum is the `up` or `down` of SRC.

    SRC=FILE reads the output of one of several iperf3 that ran at once from SRC. Each was also measured alone.

    \b
    Example:  wanbench measure home,london=ping.txt home,london=iperf3.json --site home=up:400Mbit -o mine.toml
              wanbench measure home,a@198.51.100.4 home,b@203.0.113.7 a,b=ping.txt --rate -o mine.toml
              wanbench show profile mine.toml
    """
    from wanbench.harness.measure.profile import profile_toml
    from wanbench.netprofiles import ProfileError, load

    if output.suffix != ".toml":
        raise SpecError(f"{output}: expected a name that ends in .toml")
    stated = _stated(sites)
    _write(output, "", "x")  # a measurement takes minutes, and nobody else has this name meanwhile
    try:
        paths, at_once = _measured(sources, parallel if rate else 0, stated)
        _write(output, profile_toml(output.stem, paths, at_once, stated), "w")
        load(str(output))
    except BaseException as error:
        output.unlink()
        if isinstance(error, ProfileError):
            raise SpecError(f"the measurements do not make a profile: {error}") from None
        raise
    click.echo(output)


def _write(output: Path, text: str, mode: str) -> None:
    try:
        with output.open(mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"{output}: already exists; choose another name") from None
    except OSError as error:
        raise HostError(f"{output}: cannot be written: {error.strerror}") from None


def _stated(texts: Iterable[str]) -> dict[str, dict[str, Rate]]:
    from wanbench.netprofiles import Rate, UnitError

    rates: dict[str, dict[str, Rate]] = {}
    for text in texts:
        names, _, values = named(text, "=")
        site = names[0] if len(names) == 1 else ""
        for value in values.split(","):
            key, colon, rate = value.partition(":")
            if not site or not colon or key not in {"up", "down"}:
                raise SpecError(f"--site {text}: expected SITE=up:RATE, SITE=down:RATE or both, e.g. onprem=up:400Mbit")
            if key in rates.setdefault(site, {}):
                raise SpecError(f"--site {text}: {key} of {site} is stated twice; keep one")
            try:
                rates[site][key] = Rate.parse(rate)
            except UnitError as error:
                raise SpecError(f"--site {text}: {error}") from None
    return rates


def _measured(
    sources: tuple[str, ...], flows: int, stated: Iterable[str]
) -> tuple[dict[Pair, list[Reading]], dict[str, list[Reading]]]:
    """The readings of each path, and those of each site at once.

    Args:
        flows: to each host; 0 measures no rate.
        stated: sites that must have a path.
    """
    paths: dict[Pair, list[Reading]] = {}
    at_once: dict[str, list[Reading]] = {}
    hosts: dict[str, dict[Pair, str]] = {}
    for source in sources:
        names, mark, where = named(source, "=@")
        if not 1 <= len(names) <= 2 or not all(names) or not where or (mark == "@" and len(names) < 2):
            raise SpecError(f"{source}: {_FORM}, e.g. home,london=ping.txt")
        src, dst = names[0], names[-1] if len(names) > 1 else ""
        readings = paths.setdefault((src, dst), []) if dst else at_once.setdefault(src, [])
        if mark == "@":
            if not _HOST.fullmatch(where):
                raise SpecError(f"{source}: {where!r} is not a host; expected a name or an address, e.g. 198.51.100.4")
            hosts.setdefault(src, {})[src, dst] = where
        else:
            readings += _read(where) if dst else _rates_of(_read(where), source)
    _check_complete(paths, [*at_once, *stated])
    for src, targets in hosts.items():
        for pair, host in targets.items():
            paths[pair] += _path(host, flows)
        if flows and len(targets) > 1:
            at_once.setdefault(src, []).extend(_rates(list(targets.values()), flows))
    return paths, at_once


def _check_complete(pairs: Collection[Pair], named: Iterable[str]) -> None:
    sites = dict.fromkeys(site for pair in pairs for site in pair)
    for site in named:
        if site not in sites:
            raise SpecError(f"{site}: no path of this site is measured; sites: {', '.join(sites)}")
    for first, second in combinations(sites, 2):
        if (first, second) not in pairs and (second, first) not in pairs:
            add = f"add {first},{second}=FILE or {second},{first}=FILE, with output of ping"
            raise SpecError(f"{first},{second}: no path between these sites; {add}")


def _read(name: str) -> list[Reading]:
    from wanbench.harness.measure.readings import read
    from wanbench.netprofiles import FileError
    from wanbench.netprofiles.user_file import read_text

    file = Path(name)
    try:
        text = read_text(file, errors="replace")
    except FileError as error:
        raise SpecError(f"{file}: {error}") from None
    day = date.fromtimestamp(file.stat().st_mtime)
    return read(text, file.name, day)


def _rates_of(readings: list[Reading], source: str) -> list[Reading]:
    if any(reading.rate_mbps is None for reading in readings):
        raise SpecError(f"{source}: output of ping; SRC=FILE reads the JSON of iperf3, a path is SRC,DST=FILE")
    return readings


def _path(host: str, flows: int) -> list[Reading]:
    from wanbench.harness.measure.hosts import ping
    from wanbench.harness.measure.readings import read

    click.echo(f"wanbench: ping {host}", err=True)
    readings = read(ping(host), f"to {host}", date.today())
    return readings + (_rates([host], flows) if flows else [])


def _rates(hosts: list[str], flows: int) -> list[Reading]:
    """The rates to and from all hosts at once."""
    from wanbench.harness.measure.hosts import iperf3
    from wanbench.harness.measure.readings import read

    click.echo(f"wanbench: iperf3 {', '.join(hosts)}", err=True)
    return [
        reading
        for back in (False, True)
        for host, text in zip(hosts, iperf3(hosts, flows, back=back), strict=True)
        for reading in read(text, f"to {host}", date.today())
    ]
