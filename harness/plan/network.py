"""The network of a cell, described by its `[network]` table, and its part of the cell's identity."""

import hashlib
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.spec.tables import NetworkTable
from wanbench.netprofiles import Profile, load, uniform
from wanbench.netprofiles.path import EFFECTS, UNIFORM_KEYS
from wanbench.netprofiles.units import NO_DELAY

_UNIFORM = "uniform"
_loaded = lru_cache(maxsize=64)(load)


@dataclass(frozen=True)
class CellNetwork:
    """A `[network]` table and its profile.

    Attributes:
        source: catalog name or file of the profile; the file's folder is not part of the identity.
        digest: hash of a named profile's values, None for `uniform`.
    """

    table: NetworkTable = field(default_factory=NetworkTable)
    source: str = _UNIFORM
    digest: str | None = None

    @property
    def name(self) -> str:
        return self.table.profile if self.is_uniform else Path(self.source).stem

    @property
    def is_uniform(self) -> bool:
        """True for N sites of one worker, with equal paths between all pairs."""
        return self.source == _UNIFORM

    def identity(self) -> dict[str, Any]:
        """Plain data without defaults."""
        own = self.table.identity()
        return own if self.is_uniform else own | {"profile": self.name, "sha256": self.digest}

    def profile(self, workers: int, scale: float) -> Profile:
        """The sites and paths for a number of workers; `scale` multiplies rates."""
        table = self.table
        if self.is_uniform:
            effects = {e.key: value for e in EFFECTS if (value := getattr(table, e.key)) is not None}
            profile = uniform(max(workers, 1), table.rtt or NO_DELAY, table.rate, table.buffer, **effects)
        else:
            profile = _loaded(self.source).scaled(table.rtt_scale or 1.0, "rtt_scale")
            profile = profile.scaled(table.rate_scale or 1.0, "rate_scale")
        return profile.scaled(scale)

    def conditions(self, profile: Profile, placement: Iterable[str]) -> dict[str, float | None]:
        """The columns of the conditions that all paths in use share; None if they differ, or no path is in use."""
        sites = dict.fromkeys(placement)
        pairs = [(a, b) for a in sites for b in sites if a != b]
        paths = [profile.path(a, b) for a, b in pairs]
        rtts = sorted(profile.rtt(a, b).ms for a, b in pairs)
        # In uniform, paths are unlimited, but each site's own link is not.
        limits = [site.up for site in profile.sites] if self.is_uniform else [path.rate for path in paths]
        return {
            "rtt_ms": statistics.median(rtts) if rtts else None,
            "rtt_max_ms": rtts[-1] if rtts else None,
            "rate_mbps": _only({limit.mbit if limit else None for limit in limits}) if paths else None,
            "loss_pct": _only({path.loss.percent for path in paths}),
            "loss_burst": _only({path.loss_burst.value or None if path.loss_burst else None for path in paths}),
            "jitter_ms": _only({path.jitter.ms for path in paths}),
        }


def _only(values: set[float | None] | set[float]) -> float | None:
    return next(iter(values)) if len(values) == 1 else None


def with_profile(table: NetworkTable, where: str) -> CellNetwork:
    """Find the profile that a table names.

    Args:
        where: the spec; a profile file is searched for beside it first, then in the working folder.

    Raises:
        SpecError: no such profile.
    """
    if table.profile == _UNIFORM:
        return CellNetwork(table)
    beside = Path(where).parent / table.profile
    source = str(beside) if table.profile.endswith((".toml", ".csv")) and beside.is_file() else table.profile
    return CellNetwork(table, source, _digest(source, where))


def check_keys(table: NetworkTable, where: str, *, alone: bool) -> None:
    """Check that the keys fit the profile; one worker alone needs no RTT. Raises: SpecError."""
    uniform_only, named_only = UNIFORM_KEYS, ("rtt_scale", "rate_scale")
    if table.profile == _UNIFORM:
        _refuse(table, named_only, f"only a named profile takes it; uniform takes {', '.join(uniform_only)}", where)
        if not alone and table.rtt is None:
            raise SpecError(f"{where}: network.rtt: the uniform profile needs an RTT; set it or sweep rtt")
    else:
        takes = f"only the uniform profile takes it; {table.profile!r} takes {', '.join(named_only)}"
        _refuse(table, uniform_only, f"{takes}; remove it, or leave out what sweeps it (--drop sweep.KEY)", where)


def _refuse(table: NetworkTable, keys: Iterable[str], why: str, where: str) -> None:
    for key in keys:
        if getattr(table, key) is not None:
            raise SpecError(f"{where}: network.{key}: {why}")


@lru_cache(maxsize=64)
def _digest(source: str, where: str) -> str:
    """Hash a profile's values only: a better description does not make another network."""
    with as_spec_error(f"{where}: network.profile", ValueError):
        text = json.dumps(_values(_loaded(source).to_json()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _values(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _values(v) for k, v in data.items() if k not in {"provenance", "notes", "description"}}
    return [_values(item) for item in data] if isinstance(data, list) else data
