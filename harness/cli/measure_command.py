"""wanbench measure"""

from collections.abc import Collection, Iterable
from datetime import date
from itertools import combinations
from pathlib import Path

import click

from wanbench.harness.cli.options import named
from wanbench.harness.errors import HostError, SpecError, as_spec_error
from wanbench.harness.measure.profile import Reading, profile_toml, read
from wanbench.netprofiles import FileError, ProfileError, Rate, UnitError, load
from wanbench.netprofiles.user_file import read_text

_FORM = "expected SRC,DST=FILE or SRC=FILE"

Pair = tuple[str, str]


@click.command("measure")
@click.argument("sources", nargs=-1, required=True, metavar="SRC,DST=FILE|SRC=FILE...")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@click.option(
    "--site",
    "sites",
    multiple=True,
    metavar="SITE=up:RATE,down:RATE",
    help="State a rate that all paths of a site share, e.g. onprem=up:400Mbit. Repeatable.",
)
def command(sources: tuple[str, ...], output: Path, sites: tuple[str, ...]) -> None:
    """Write a profile from measurements between sites, each value with its source.

    SRC,DST=FILE reads the output of `ping` or the JSON of `iperf3 -J`, measured from a machine at SRC to one at DST.
    Several files may describe the same pair.

    SRC=FILE reads the output of one of several iperf3 that ran at once from SRC. Each path must be measured alone, too.
    If the sum of the rates is more than 10 % lower at once, the paths share a link, and the sum is the `up` of SRC, or
    its `down` with -R.

    \b
    Example:  wanbench measure home,london=ping.txt home,london=iperf3.json --site home=up:400Mbit -o mine.toml
              wanbench show profile mine.toml
    """
    if output.suffix != ".toml":
        raise SpecError(f"{output}: expected a name that ends in .toml")
    if output.exists():
        raise SpecError(f"{output}: already exists; choose another name")
    stated = _stated(sites)
    text = profile_toml(output.stem, *_read_all(sources, stated), stated)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HostError(f"{output}: cannot be written: {error.strerror}") from None
    try:
        load(str(output))
    except ProfileError as error:
        output.unlink()
        raise SpecError(f"the measurements do not make a profile: {error}") from None
    click.echo(output)


def _stated(texts: Iterable[str]) -> dict[str, dict[str, Rate]]:
    rates: dict[str, dict[str, Rate]] = {}
    for text in texts:
        names, values = named(text)
        site = names[0] if len(names) == 1 else ""
        for value in values.split(","):
            key, colon, rate = value.partition(":")
            if not site or not colon or key not in {"up", "down"}:
                raise SpecError(f"--site {text}: expected SITE=up:RATE, SITE=down:RATE or both, e.g. onprem=up:400Mbit")
            if key in rates.setdefault(site, {}):
                raise SpecError(f"--site {text}: {key} of {site} is stated twice; keep one")
            with as_spec_error(f"--site {text}", UnitError):
                rates[site][key] = Rate.parse(rate)
    return rates


def _read_all(
    sources: tuple[str, ...], stated: Iterable[str]
) -> tuple[dict[Pair, list[Reading]], dict[str, list[Reading]]]:
    """The readings of each path, and those of each site at once. `stated`: sites that must have a path."""
    paths: dict[Pair, list[Reading]] = {}
    at_once: dict[str, list[Reading]] = {}
    for source in sources:
        names, file = named(source)
        if "@" in source and not names:
            raise SpecError(f"{source}: measure reads files; run `ping HOST > FILE`, and give SRC,DST=FILE")
        if not 1 <= len(names) <= 2 or not all(names) or not file:
            raise SpecError(f"{source}: {_FORM}, e.g. home,london=ping.txt")
        readings = _read(file)
        if len(names) == 2:
            paths.setdefault((names[0], names[1]), []).extend(readings)
        elif any(reading.rate_mbps is None for reading in readings):
            raise SpecError(f"{source}: output of ping; SRC=FILE reads the JSON of iperf3, a path is SRC,DST=FILE")
        else:
            at_once.setdefault(names[0], []).extend(readings)
    _check_complete(paths, [*at_once, *stated])
    return paths, at_once


def _check_complete(pairs: Collection[Pair], named: Iterable[str]) -> None:
    sites = dict.fromkeys(site for pair in pairs for site in pair)
    for site in named:
        if site not in sites:
            raise SpecError(f"{site}: no path of this site is measured; sites: {', '.join(sites)}")
    for a, b in combinations(sites, 2):
        if (a, b) not in pairs and (b, a) not in pairs:
            add = f"add {a},{b}=FILE or {b},{a}=FILE, with output of ping"
            raise SpecError(f"{a},{b}: no path between these sites; {add}")


def _read(name: str) -> list[Reading]:
    file = Path(name)
    with as_spec_error(str(file), FileError):
        text = read_text(file, errors="replace")
    return read(text, file.name, date.fromtimestamp(file.stat().st_mtime))
