"""Paths as plain CSV: `src,dst,rtt_ms,rate_mbps,...`, one line per path.

Columns: src, dst, then rtt_ms (half of it each way) or one_way_ms, and optionally jitter_ms (one way,
standard deviation), loss_pct (per packet), loss_burst (mean number of packets lost in a row), rate_mbps
and buffer (a size such as 256KiB). An empty cell is an absent value. A path given in one direction applies to both.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as File

from wanbench.netprofiles.errors import ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.impairments.delay import ONE_WAY, RTT
from wanbench.netprofiles.path import PATH_VALUES, STATED, Pair, Path, Provenance, Site, both_ways
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import Quantity
from wanbench.netprofiles.values import PathValues, add_path, read_text, values_of

COLUMNS = ("src", "dst", *(each.column for each in (RTT, ONE_WAY, *STATED[1:])))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the file. `where` names it in error messages."""

    where: str
    src: str
    dst: str
    values: PathValues


def load_csv(file: File) -> Profile:
    """Load a profile of the sites that the file names, in order of appearance, with unlimited up and down rates.

    Raises:
        ProfileError: names the file, the line and the column.
    """
    paths: dict[Pair, Path] = {}
    sites: dict[str, None] = {}
    provenance = dict.fromkeys(PATH_VALUES, Provenance("given", file.name))
    for row in read_rows(file):
        sites.update({row.src: None, row.dst: None})
        add_path(paths, row.where, row.values, (row.src, row.dst), provenance)
    try:
        return Profile(
            name=file.stem,
            description=f"Paths of {file.name}.",
            sites=tuple(Site(name) for name in sites),
            paths=both_ways(paths),
        )
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from None


def read_rows(file: File) -> Iterator[Row]:
    """Yield the lines of the file.

    Raises:
        ProfileError: names the file, the line and the column.
    """
    lines = csv.reader(read_text(file).splitlines(), skipinitialspace=True)
    header = [name.strip() for name in next(lines, [])]
    _check_header(f"{file}, line 1", header)
    for cells in lines:
        if not cells:
            continue
        where = f"{file}, line {lines.line_num}"
        if len(cells) != len(header):
            raise ProfileError(f"{where}: {len(cells)} cells; expected {len(header)} ({', '.join(header)})")
        yield _row(where, {name: cell.strip() for name, cell in zip(header, cells, strict=True)})


def _check_header(where: str, header: list[str]) -> None:
    for name in header:
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise ProfileError(f"{where}: unknown column {name!r}; expected {', '.join(COLUMNS)}{near}")
        if header.count(name) > 1:
            raise ProfileError(f"{where}: column {name!r} appears twice; expected once")
    for name in ("src", "dst"):
        if name not in header:
            raise ProfileError(f"{where}: no column {name!r}; expected {', '.join(COLUMNS)}")
    if ("rtt_ms" in header) == ("one_way_ms" in header):
        raise ProfileError(f"{where}: expected exactly one of the columns rtt_ms and one_way_ms")


def _row(where: str, cells: dict[str, str]) -> Row:
    for name in ("src", "dst"):
        if not cells[name]:
            raise ProfileError(f"{where}, {name}: empty; expected the name of a site")
    delay = RTT.column if RTT.column in cells else ONE_WAY.column
    if not cells[delay]:
        raise ProfileError(f"{where}, {delay}: empty; expected a number of ms, such as 80")
    values = values_of(lambda impairment: _quantity(where, impairment, cells.get(impairment.column, "")))
    return Row(where, cells["src"], cells["dst"], values)


def _quantity(where: str, impairment: Impairment, cell: str) -> Quantity | None:
    scale = impairment.unit.scale
    try:
        return impairment.parse(cell + scale.unit) if cell else None
    except UnitError as error:
        # If the column's name contains the unit, the quantity's own message would mislead: it asks for a unit.
        bare = f"{cell!r} is invalid; expected a number, {scale.span}, without a unit"
        raise ProfileError(f"{where}, {impairment.column}: {bare if scale.unit else error}") from None
