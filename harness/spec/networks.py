"""The network that a cell's `[network]` table describes, and what of it is part of the cell's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.experiment import NetworkTable, TcpTable
from wanbench.netprofiles import Delay, Profile, Rate, load, uniform
from wanbench.netprofiles.path import EFFECTS


@lru_cache(maxsize=256)
def resolve_profile(network_json: str, workers: int, payload_scale: float, source: str) -> Profile:
    """The profile that a cell's network table describes."""
    network = json.loads(network_json)
    if source == "uniform":
        profile = uniform(
            max(workers, 1),
            Delay.parse(network.get("rtt", "0ms")),
            Rate.parse(network["rate"]) if "rate" in network else None,
            **{effect.key: effect.parse(network[effect.key]) for effect in EFFECTS if effect.key in network},
        )
    else:
        profile = load(source)
        if "rtt_scale" in network:
            profile = profile.with_rtt_scale(network["rtt_scale"])
        if "rate_scale" in network:
            profile = profile.with_rate_scale(network["rate_scale"])
    return profile.scaled(payload_scale) if payload_scale != 1.0 else profile


def resolve(table: NetworkTable, given: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The table as part of a cell, and where its profile comes from.

    Args:
        given: the keys that the spec has. where: the spec; a profile file is looked for beside it first.

    Raises:
        SpecError: no such profile.
    """
    network = {**given, "profile": table.profile, "place": table.place, "tcp": table.tcp.model_dump()}
    source = _profile_source(table.profile, where)
    if source != "uniform":
        network["profile"] = Path(source).stem
        network["profile_sha256"] = _content_hash(source, where)
    return network, source


def of_one_worker() -> tuple[dict[str, Any], str]:
    """A lone worker has no network: one such table serves all networks."""
    return {"profile": "uniform", "place": "blocked", "tcp": TcpTable().model_dump()}, "uniform"


def check_keys(table: NetworkTable, where: str, *, alone: bool) -> None:
    """A profile has the keys that go with it; a worker alone needs no RTT. Raises: SpecError."""
    uniform_only, named_only = ("rtt", "rate", *(effect.key for effect in EFFECTS)), ("rtt_scale", "rate_scale")
    if table.profile == "uniform":
        _refuse(table, named_only, f"goes with a named profile; uniform takes {', '.join(uniform_only)}", where)
        if not alone and table.rtt is None:
            raise SpecError(f"{where}: network.rtt: the uniform profile needs an RTT; set it or sweep rtt")
    else:
        takes = f"{table.profile!r} takes {', '.join(named_only)}"
        _refuse(table, uniform_only, f"goes with the uniform profile; {takes}", where)


def _refuse(table: NetworkTable, keys: Iterable[str], why: str, where: str) -> None:
    for key in keys:
        if getattr(table, key) is not None:
            raise SpecError(f"{where}: network.{key}: {why}")


def _profile_source(name: str, where: str) -> str:
    """A profile file is looked for beside the spec first, then in the working folder."""
    beside = Path(where).parent / name
    return str(beside) if name.endswith((".toml", ".csv")) and beside.is_file() else name


@lru_cache(maxsize=64)
def _content_hash(source: str, where: str) -> str:
    try:
        text = json.dumps(_values(load(source).to_json()), sort_keys=True)
    except ValueError as error:
        raise SpecError(f"{where}: network.profile: {error}") from None
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _values(data: Any) -> Any:
    """Without prose: a better description does not make another network."""
    if isinstance(data, dict):
        return {k: _values(v) for k, v in data.items() if k not in {"provenance", "notes", "description"}}
    return [_values(item) for item in data] if isinstance(data, list) else data
