"""Shared by both file formats: reading the text, and the values of one path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path as File
from typing import Any

from wanbench.netprofiles import user_file
from wanbench.netprofiles.errors import FileError, ProfileError
from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.impairments.delay import ONE_WAY
from wanbench.netprofiles.path import STATED, Pair, Path, Provenance
from wanbench.netprofiles.units import Delay, Quantity

PathValues = Mapping[str, Quantity]
"""The values that a file gives for a path, by `PATH_VALUES`. If it gives a one-way delay, `rtt` is twice that."""


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


def _path(pair: Pair, values: PathValues, provenance: Mapping[str, Provenance]) -> Path:
    rtt = values.get("rtt")
    if not isinstance(rtt, Delay):
        raise ProfileError(f"{pair[0]} -> {pair[1]}: no delay; expected an RTT or a one-way delay")
    others: dict[str, Any] = {key: value for key, value in values.items() if key != "rtt"}
    return Path(*pair, Delay(rtt.ns // 2), **others, provenance={key: provenance[key] for key in values})


def read_text(file: File) -> str:
    """Return the text of `file`. Raises: ProfileError."""
    try:
        return user_file.read_text(file)
    except FileError as error:
        raise ProfileError(f"{file}: {error}") from None


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
    try:
        paths[pair] = _path(pair, values, provenance)
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None
