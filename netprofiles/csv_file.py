"""Paths and sites as plain CSV: `src,dst,rtt_ms,rate_mbps,...`, one line per path or site.

Columns: src, dst, then rtt_ms (half of it each way) or one_way_ms, and optionally jitter_ms (one way,
standard deviation), loss_pct (per packet), loss_burst (mean number of packets lost in a row), rate_mbps
and buffer (a size such as 256KiB). An empty cell is an absent value. A path given in one direction applies to both.

A line without dst is the site src: up_mbps, down_mbps and local_rtt_ms are its own; the columns of a path are empty.

A table of round trips in ms is read too. Its first line and its first column name the same sites; a cell is the round
trip as the site of its line measures it. The path of two sites has the mean of both directions, or the one that is
there. A cell of a site with itself is its local_rtt_ms.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from wanbench.netprofiles.errors import FileError, ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.impairments import ONE_WAY, RTT, Impairment
from wanbench.netprofiles.path import PATH_VALUES, STATED, STATED_OF_SITES, Pair, Path, Provenance, Site, both_ways
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import Delay, Quantity
from wanbench.netprofiles.user_file import read_table, read_text, separators

PathValues = Mapping[str, Quantity]
"""The values that a file gives for a path, by `PATH_VALUES`. If it gives a one-way delay, `rtt` is twice that."""

_OF_PATHS = tuple(value.column for value in (RTT, ONE_WAY, *STATED[1:]))
_OF_SITES = tuple(value.column for value in STATED_OF_SITES)
COLUMNS = tuple(dict.fromkeys(("src", "dst", *_OF_PATHS, *_OF_SITES)))
_NO_RTT = {"", "-", "x", "n/a", "na", "nan"}
_OF_MATRIX = (
    "A round trip is the mean of both directions of the table.",
    "The table has no rates: nothing limits a path.",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the file. `where` names it in error messages. Without `dst`, `values` are those of a site."""

    where: str
    src: str
    dst: str
    values: PathValues


def load_csv(file: File) -> Profile:
    """Load a profile of the sites that the file names, in order of appearance.

    Raises:
        ProfileError: names the file, the line and the column.
    """
    paths: dict[Pair, Path] = {}
    sites: dict[str, Site | None] = {}
    lines: dict[str, str] = {}
    given = Provenance("given", file.name)
    header, cells = _table(file)
    for row in _rows(header, cells):
        sites.setdefault(row.src, None)
        if row.dst:
            sites.setdefault(row.dst, None)
            add_path(paths, row.where, row.values, (row.src, row.dst), dict.fromkeys(PATH_VALUES, given))
        elif row.src not in lines:
            lines[row.src] = row.where
            values: Mapping[str, Any] = row.values
            sites[row.src] = Site(row.src, **values, provenance=dict.fromkeys(values, given))
        else:
            raise ProfileError(f"{row.where}: site {row.src!r} is given twice; expected once")
    _check_sites(lines, paths)
    try:
        return Profile(
            name=file.stem,
            description=f"Paths of {file.name}.",
            sites=tuple(site or Site(name) for name, site in sites.items()),
            paths=both_ways(paths),
            notes=_OF_MATRIX if _is_matrix(header, cells) else (),
        )
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from None


def _check_sites(lines: Mapping[str, str], paths: Mapping[Pair, Path]) -> None:
    """Check that a path names each site with a line, unless there is no path. Raises: ProfileError."""
    named = {name: None for pair in paths for name in pair}
    for site, where in lines.items():
        if named and site not in named:
            expected = f"expected one of {', '.join(named)}{did_you_mean(site, named)}"
            raise ProfileError(f"{where}, src: no path names the site {site!r}; {expected}")


def read_rows(file: File) -> Iterator[Row]:
    """Yield the lines of the file.

    Raises:
        ProfileError: names the file, the line and the column.
    """
    return _rows(*_table(file))


Lines = Sequence[tuple[str, list[str]]]
"""The cells of each line, after the place that names it in messages."""


def _table(file: File) -> tuple[list[str], Lines]:
    """The header, and the lines below it."""
    try:
        text = read_text(file)
    except FileError as error:
        raise ProfileError(f"{file}: {error}") from None
    try:
        rows = list(read_table(text))
    except FileError as error:
        raise ProfileError(f"{file}, {error}") from None
    header = rows[0][1] if rows else []
    lines = [(f"{file}, line {line}", cells) for line, cells in rows[1:]]
    if not _is_matrix(header, lines):
        _check_header(f"{file}, line {rows[0][0] if rows else 1}", header)
    return header, lines


def _is_matrix(header: Sequence[str], lines: Lines) -> bool:
    return header[:1] != ["src"] and len(header) > 2 and {*header[1:]} == {cells[0] for _, cells in lines}


def _rows(header: Sequence[str], lines: Lines) -> Iterator[Row]:
    if _is_matrix(header, lines):
        return _round_trips(header[1:], lines)
    return (_row(where, dict(zip(header, cells, strict=True))) for where, cells in lines)


def _round_trips(sites: Sequence[str], lines: Lines) -> Iterator[Row]:
    """The lines of a matrix: a local RTT for each site that has one, and a path for each pair."""
    rtts: dict[Pair, list[tuple[str, Delay]]] = defaultdict(list)
    position = {site: number for number, site in enumerate(sites)}
    for where, (src, *cells) in lines:
        for dst, cell in zip(sites, cells, strict=True):
            rtt = _quantity(f"{where}, {dst}", RTT, "" if cell.lower() in _NO_RTT else cell.removesuffix("ms").strip())
            if isinstance(rtt, Delay):
                first, second = sorted((src, dst), key=position.__getitem__)
                rtts[first, second].append((where, rtt))
    for (src, dst), measured in rtts.items():
        where, _ = measured[0]
        if len(measured) > 1 + (src != dst):
            raise ProfileError(f"{measured[-1][0]}: {src} and {dst} are given twice; expected once per direction")
        mean = Delay(sum(rtt.ns for _, rtt in measured) // len(measured))
        yield Row(where, src, dst, {"rtt": mean}) if src != dst else Row(where, src, "", {"local_rtt": mean})


def _check_header(where: str, header: Sequence[str]) -> None:
    if header and not {*header} & {*COLUMNS}:
        expected = (
            "such a column, or a table of round trips, with the same sites in the first line and the first column"
        )
        raise ProfileError(f"{where}: none of the columns {', '.join(COLUMNS)}; expected {expected}")
    for name in header:
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise ProfileError(f"{where}: unknown column {name!r}; expected {', '.join(COLUMNS)}{near}")
        if list(header).count(name) > 1:
            raise ProfileError(f"{where}: column {name!r} appears twice; expected once")
    for name in ("src", "dst"):
        if name not in header:
            raise ProfileError(f"{where}: no column {name!r}; expected {', '.join(COLUMNS)}")
    if ("rtt_ms" in header) == ("one_way_ms" in header):
        raise ProfileError(f"{where}: expected exactly one of the columns rtt_ms and one_way_ms")


def _row(where: str, cells: dict[str, str]) -> Row:
    if not cells["src"]:
        raise ProfileError(f"{where}, src: empty; expected the name of a site")
    for name in ("src", "dst"):
        if not cells[name].isprintable():
            raise ProfileError(f"{where}, {name}: {cells[name]!r}: expected a name that can be printed, in one line")
    kind, own, foreign = ("path", _OF_PATHS, _OF_SITES) if cells["dst"] else ("site", _OF_SITES, _OF_PATHS)
    for name in foreign:
        if name not in own and cells.get(name):
            which = "with a" if cells["dst"] else "without"
            raise ProfileError(f"{where}, {name}: a line {which} dst is a {kind}; expected only {', '.join(own)}")

    def read(impairment: Impairment) -> Quantity | None:
        return _quantity(where, impairment, cells.get(impairment.column, ""))

    if not cells["dst"]:
        values = {stated.key: value for stated in STATED_OF_SITES if (value := read(stated)) is not None}
        return Row(where, cells["src"], "", values)
    delay = RTT.column if RTT.column in cells else ONE_WAY.column
    if not cells[delay]:
        raise ProfileError(f"{where}, {delay}: empty; expected a number of ms, such as 80")
    return Row(where, cells["src"], cells["dst"], values_of(read))


def _quantity(where: str, impairment: Impairment, cell: str) -> Quantity | None:
    scale = impairment.unit.scale
    try:
        return impairment.parse(cell + scale.unit) if cell else None
    except UnitError as error:
        # If the column's name contains the unit, the quantity's own message would mislead: it asks for a unit.
        bare = f"{cell!r} is invalid; expected a number, {scale.span}, without a unit"
        raise ProfileError(f"{where}, {impairment.column}: {bare if scale.unit else error}{separators(cell)}") from None


# ---------------------------------------------------------------- the values of one path, of both file formats


def values_of(read: Callable[[Impairment], Quantity | None]) -> PathValues:
    """Return the values that a file gives for a path.

    Args:
        read: returns the value of an impairment, None if the file does not give it.
    """
    values = {impairment.key: read(impairment) for impairment in STATED}
    one_way = read(ONE_WAY)
    if isinstance(one_way, Delay):
        values["rtt"] = Delay(2 * one_way.ns)
    return {key: value for key, value in values.items() if value is not None}


def add_path(
    paths: dict[Pair, Path],
    where: str,
    values: PathValues,
    pair: Pair,
    provenance: Mapping[str, Provenance],
) -> None:
    """Add a path to `paths`. `provenance` has every key of `PATH_VALUES`.

    Raises:
        ProfileError: begins with `where`; the pair is already in `paths`, or its values contradict each other.
    """
    if pair in paths:
        raise ProfileError(f"{where}: {pair[0]} -> {pair[1]} is given twice; expected once per direction")
    rtt = values.get(RTT.key)
    if not isinstance(rtt, Delay):
        raise ProfileError(f"{where}: {pair[0]} -> {pair[1]}: no delay; expected an RTT or a one-way delay")
    rest: dict[str, Any] = {key: value for key, value in values.items() if key != RTT.key}
    try:
        paths[pair] = Path(*pair, Delay(rtt.ns // 2), **rest, provenance={key: provenance[key] for key in values})
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None
