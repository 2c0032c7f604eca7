"""Load a profile by name from the catalog, or from a user's file: CSV (`csv_file`), or TOML.

TOML is read strictly: an unknown key, type, unit or source is an error.

    schema = 1
    name = "two-sites"
    description = "Its purpose."
    notes = ["Facts that a reader of results must know."]

    [sources]                              # each written once, referred to by its tag
    ping-2026 = "own ping of 1 h, 2026-03-01"

    [path_defaults]                        # any key of a path; [site_defaults] likewise
    rtt_standing = "measured"
    rtt_source = "ping-2026"

    [[sites]]
    name = "oregon"
    region = "us-west-2"                   # optional, an alias; city is optional too, for display only
    up = "10Gbit"                          # optional: up, down (absent: unlimited), buffer, local_rtt
    up_standing = "assumed"                # optional: measured | inferred | assumed | fitted | given

    [[paths]]                              # or: paths_file = "two-sites.csv", beside this file
    src = "oregon"
    dst = "london"
    rtt = "145ms"                          # or one_way; then jitter (one way), loss, loss_burst, rate, buffer

A path given in one direction applies to both.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, TypeVar, cast

from wanbench.netprofiles.csv_file import PathValues, add_path, load_csv, read_rows, values_of
from wanbench.netprofiles.errors import FileError, ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.impairments import ONE_WAY, RTT
from wanbench.netprofiles.path import (
    PATH_VALUES,
    PROVENANCE_KINDS,
    SITE_VALUES,
    Pair,
    Path,
    Provenance,
    ProvenanceKind,
    Site,
    both_ways,
)
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.units import NO_DELAY, Delay, Rate, Size
from wanbench.netprofiles.user_file import parse_toml, read_text

SCHEMA = 1
_CATALOG = File(__file__).parent / "catalog"

_TOP = (
    "schema",
    "name",
    "description",
    "notes",
    "sources",
    "site_defaults",
    "path_defaults",
    "sites",
    "paths",
    "paths_file",
)
_NAMES = ("name", "region", "city", "src", "dst")
_PATH_QUANTITIES = (RTT.key, ONE_WAY.key, *PATH_VALUES[1:])

Unit = TypeVar("Unit")


def _with_origin(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in names for suffix in ("", "_standing", "_source"))


_SITE_KEYS = ("name", "region", "city", *_with_origin(SITE_VALUES))
_PATH_KEYS = ("src", "dst", *_with_origin(_PATH_QUANTITIES))


def catalog_names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return sorted(file.stem for file in _CATALOG.glob("*.toml"))


def load(name_or_path: str) -> Profile:
    """Load a built-in profile by name, or the profile in a `.toml` or `.csv` file.

    Raises:
        ProfileError: no such profile or file, or the file is invalid.
    """
    file = File(name_or_path)
    if file.suffix == ".toml":
        return load_toml(file)
    if file.suffix == ".csv":
        return load_csv(file)
    names = catalog_names()
    if name_or_path not in names:
        near = did_you_mean(name_or_path, names)
        raise ProfileError(
            f"no profile {name_or_path!r}; expected one of {', '.join(names)}, or a .toml or .csv file{near}"
        )
    return load_toml(_CATALOG / f"{name_or_path}.toml")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file. `where` names it in error messages."""

    where: str
    data: Mapping[str, Any]

    def only(self, allowed: tuple[str, ...]) -> None:
        for key in self.data:
            if key not in allowed:
                near = did_you_mean(key, allowed)
                raise ProfileError(f"{self.where}: unknown key {key!r}; expected one of {', '.join(allowed)}{near}")

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise ProfileError(f"{self.where}.{key}: {value!r} is invalid; expected text in quotes")
        if key in _NAMES and not value.isprintable():
            raise ProfileError(f"{self.where}.{key}: {value!r}: expected a name that can be printed, in one line")
        return value

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise ProfileError(f"{self.where}: missing key {key!r}; expected text in quotes")
        return value

    def quantity(self, key: str, parse: Callable[[str], Unit]) -> Unit | None:
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, (list, dict)):
            raise ProfileError(f"{self.where}.{key}: expected one quantity in quotes, not {value!r}")
        try:
            return parse(str(value))
        except UnitError as error:
            raise ProfileError(f"{self.where}.{key}: {error}") from None


def load_toml(file: File) -> Profile:
    """Load the profile in `file`.

    Raises:
        ProfileError: names the file and the key, or the line of a syntax error.
    """
    try:
        data = parse_toml(read_text(file))
    except FileError as error:
        raise ProfileError(f"{file}: {error}") from None
    top = _Table(f"{file}: top level", data)
    top.only(_TOP)
    if data.get("schema") != SCHEMA:
        got = repr(data["schema"])[:40] if "schema" in data else "missing"
        raise ProfileError(f"{file}: schema is {got}; expected schema = {SCHEMA}")
    name, description = top.required("name"), top.required("description")
    reader = _Reader(file, data)
    sites = reader.sites()
    paths = reader.paths(sites)
    notes = reader.notes()
    try:
        return Profile(
            name=name,
            description=description,
            sites=sites,
            paths=both_ways(paths),
            notes=notes,
        )
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the parts of one file."""

    file: File
    data: Mapping[str, Any]

    def table(self, key: str) -> _Table:
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            raise ProfileError(f"{self.file}: {key} is not a table; expected [{key}]")
        return _Table(f"{self.file}: {key}", value)

    def tables(self, key: str) -> list[_Table]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ProfileError(f"{self.file}: {key} is not a list of tables; expected [[{key}]]")
        return [_Table(f"{self.file}: {key}[{index}]", item) for index, item in enumerate(value)]

    def notes(self) -> tuple[str, ...]:
        value = self.data.get("notes", [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ProfileError(f"{self.file}: notes is invalid; expected a list of texts in quotes")
        return tuple(value)

    def sites(self) -> tuple[Site, ...]:
        defaults = self.table("site_defaults")
        defaults.only(_with_origin(SITE_VALUES))
        sites = []
        for given in self.tables("sites"):
            given.only(_SITE_KEYS)
            name = given.required("name")
            table = _Table(f"{self.file}: sites[{name}]", {**defaults.data, **given.data})
            local_rtt = table.quantity("local_rtt", Delay.parse)
            origin = {key: self.origin(table, key) for key in SITE_VALUES}
            sites.append(
                Site(
                    name=name,
                    region=table.text("region"),
                    city=table.text("city"),
                    up=table.quantity("up", Rate.parse),
                    down=table.quantity("down", Rate.parse),
                    buffer=table.quantity("buffer", Size.parse),
                    local_rtt=NO_DELAY if local_rtt is None else local_rtt,
                    provenance={key: origin[key] for key in SITE_VALUES if key in table.data},
                )
            )
        return tuple(sites)

    def paths(self, sites: Iterable[Site]) -> dict[Pair, Path]:
        names = {alias: site.name for site in sites for alias in site.aliases}
        defaults = self.table("path_defaults")
        defaults.only(_with_origin(_PATH_QUANTITIES))
        paths: dict[Pair, Path] = {}
        if "paths_file" not in self.data:
            for given in self.tables("paths"):
                given.only(_PATH_KEYS)
                src, dst = (_site_name(f"{given.where}.{end}", given.required(end), names) for end in ("src", "dst"))
                table = _Table(f"{self.file}: paths[{src} -> {dst}]", {**defaults.data, **given.data})
                values, origins = self.values(table), self.origins(table)
                add_path(paths, f"{self.file}: paths", values, (src, dst), origins)
            return paths
        if "paths" in self.data:
            raise ProfileError(f"{self.file}: both paths and paths_file are set; expected only one")
        top = _Table(f"{self.file}: top level", self.data)
        fallback, origins = self.values(defaults), self.origins(defaults)
        for row in read_rows(self.file.parent / top.required("paths_file")):
            if not row.dst:
                raise ProfileError(f"{row.where}, dst: empty; a paths_file has paths only, sites belong in [[sites]]")
            src = _site_name(f"{row.where}, src", row.src, names)
            dst = _site_name(f"{row.where}, dst", row.dst, names)
            add_path(paths, row.where, {**fallback, **row.values}, (src, dst), origins)
        return paths

    def values(self, table: _Table) -> PathValues:
        if RTT.key in table.data and ONE_WAY.key in table.data:
            raise ProfileError(f"{table.where}: both rtt and one_way are set; expected only one")
        return values_of(lambda impairment: table.quantity(impairment.key, impairment.parse))

    def origins(self, table: _Table) -> dict[str, Provenance]:
        """The provenance of each value of a path; the RTT takes that of a one-way delay."""
        delay = "one_way" if "one_way" in table.data or "one_way_source" in table.data else "rtt"
        return {key: self.origin(table, delay if key == "rtt" else key) for key in PATH_VALUES}

    def origin(self, table: _Table, key: str) -> Provenance:
        kind, tag = table.text(f"{key}_standing"), table.text(f"{key}_source")
        if kind is None:
            if tag is not None:
                raise ProfileError(f"{table.where}: {key}_source without {key}_standing; expected both")
            return Provenance("given", self.file.name)
        if kind not in PROVENANCE_KINDS:
            expected = f"expected one of {', '.join(PROVENANCE_KINDS)}{did_you_mean(kind, PROVENANCE_KINDS)}"
            raise ProfileError(f"{table.where}.{key}_standing: unknown provenance {kind!r}; {expected}")
        if tag is None:
            raise ProfileError(f"{table.where}: {key}_standing without {key}_source; expected both")
        sources = self.table("sources")
        source = sources.text(tag)
        if source is None:
            near = did_you_mean(tag, sources.data)
            raise ProfileError(f"{table.where}.{key}_source: no source {tag!r} in [sources]{near}")
        return Provenance(cast(ProvenanceKind, kind), source)


def _site_name(where: str, alias: str, names: Mapping[str, str]) -> str:
    if alias not in names:
        raise ProfileError(f"{where}: unknown site {alias!r}; expected one of [[sites]]{did_you_mean(alias, names)}")
    return names[alias]
