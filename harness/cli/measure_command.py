"""wanbench measure"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.errors import HostError, SpecError

if TYPE_CHECKING:
    from wanbench.harness.measure import Reading

_FORM = "expected SRC,DST=FILE or SRC,DST@HOST"


@click.command("measure", short_help="Make a profile from ping and iperf3 output, or from live hosts.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC,DST=FILE|SRC,DST@HOST...")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@click.option("--rate", is_flag=True, help="Also measure the rate to live hosts, which must run `iperf3 -s`.")
def command(sources: tuple[str, ...], output: Path, rate: bool) -> None:
    """Write a profile from measurements between sites, each value with its source.

    SRC,DST=FILE reads the output of `ping` or the JSON of `iperf3 -J`, measured from a machine at SRC to one at DST.
    Several files may describe the same pair. SRC,DST@HOST pings HOST, which is at DST, from this machine, which is at
    SRC.

    \b
    Example:  wanbench measure home,london=ping.txt home,london=iperf3.json home,tokyo@203.0.113.7 -o mine.toml
              wanbench show profile mine.toml
    """
    from wanbench.harness.measure import profile_toml
    from wanbench.netprofiles import ProfileError, load

    if output.suffix != ".toml":
        raise SpecError(f"{output}: expected a name that ends in .toml")
    if output.exists():
        raise SpecError(f"{output}: already exists; choose another name")
    readings: dict[tuple[str, str], list[Reading]] = {}
    for source in sources:
        pair, found = _readings(source, rate)
        readings.setdefault(pair, []).extend(found)
    text = profile_toml(output.stem, readings)
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


def _readings(source: str, rate: bool) -> tuple[tuple[str, str], list[Reading]]:
    from wanbench.harness.measure import read, run_tools

    at = min((source.find(mark) for mark in "=@" if mark in source), default=-1)
    src, comma, dst = source[:at].partition(",")
    if at < 0 or not comma or not src.strip() or not dst.strip() or not source[at + 1 :]:
        raise SpecError(f"{source}: {_FORM}, e.g. home,london=ping.txt")
    pair, where = (src.strip(), dst.strip()), source[at + 1 :]
    if source[at] == "@":
        return pair, [read(text, f"to {where}", date.today()) for text in run_tools(where, rate=rate)]
    file = Path(where)
    try:
        text = file.read_text(encoding="utf-8")
        day = date.fromtimestamp(file.stat().st_mtime)
    except OSError as error:
        raise SpecError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{file}: not a text file; expected UTF-8") from None
    return pair, [read(text, file.name, day)]
