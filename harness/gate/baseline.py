"""The baseline, a file to commit: sorted JSON with one line per cell, so that a diff shows the changed cells.

It carries the version of wanbench that measured it and a digest of its spec. Another version may measure other values
for the same code, so nothing is compared with its values: the baseline must be written again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wanbench.harness.errors import SpecError, writing
from wanbench.harness.gate.exact import Entry
from wanbench.harness.results.disk import write_text
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles.errors import FileError
from wanbench.netprofiles.user_file import read_text

_SCHEMA = 2
_UNMEASURED = ("description", "gate")  # tables of a spec that change no value

Count = Annotated[int, Field(ge=0, le=1 << 53)]  # as in rows
Positive = Annotated[float, Field(gt=0)]


_ABSENT: Any = None  # the key can be left out, but null is no value


class _Cell(BaseModel):
    """The values of a cell; those that it does not have are left out."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    cell: str
    testbed: str
    emulator: str | None
    hosts: list[str] = _ABSENT
    steps: Count = _ABSENT
    payload_bytes: Count = _ABSENT
    messages_sent: Count = _ABSENT
    step_time_s: Positive = _ABSENT
    scalability: Positive = _ABSENT
    wire_bytes_per_step: Annotated[float, Field(ge=0)] = _ABSENT
    final_loss: float = _ABSENT
    accuracy: float = _ABSENT


class _Cells(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    experiment: str
    schema_: Annotated[int, Field(alias="schema")]
    wanbench: str
    spec: str
    cells: Annotated[dict[str, _Cell], Field(min_length=1)]


class Unusable(SpecError):
    """There is no baseline of this experiment in the file. `--accept` writes one."""


@dataclass(frozen=True)
class Baseline:
    """A baseline as read.

    Attributes:
        spec: the digest of its spec. cells: the values by name of cell.
        rewrite: why its values cannot be compared; empty if they can.
    """

    spec: str
    cells: Mapping[str, Entry]
    rewrite: str = ""


def digest(spec: Spec) -> str:
    """A digest of the parts of a spec that decide what is measured."""
    plain = {key: value for key, value in spec.to_dict().items() if key not in _UNMEASURED}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def read(path: Path, experiment: str) -> Baseline:
    """Read the baseline of an experiment.

    Raises:
        Unusable: there is no file, or it has no cells, values that cannot have been measured, or another experiment's.
        SpecError: the file is something else.
    """
    data = _load(path)
    if data.get("experiment") != experiment:
        raise _unusable(path, f"the baseline of {data.get('experiment')!r}, not of {experiment!r}")
    if data.get("schema") != _SCHEMA or data.get("wanbench") != version("wanbench"):
        writer = data.get("wanbench", "an earlier version")
        cells = data["cells"] if isinstance(data["cells"], dict) else {}
        return Baseline("", {name: {} for name in cells}, f"re-baseline: written by wanbench {writer}, "
                        f"and this is {version('wanbench')}; if nothing else has changed, use --accept")  # fmt: skip
    try:
        parsed = _Cells.model_validate(data)
    except ValidationError as error:
        raise _unusable(path, in_words(error)) from None
    return Baseline(parsed.spec, {name: cell.model_dump(exclude_unset=True) for name, cell in parsed.cells.items()})


def _load(path: Path) -> dict[str, Any]:
    """The content of the file. Raises: as `read`."""
    if not path.exists():
        raise _unusable(path, "there is no such baseline")
    try:
        data = json.loads(read_text(path), object_pairs_hook=_once)
    except (FileError, ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not a baseline: {error}; remove it, and write one with --accept") from None
    if not isinstance(data, dict) or not {"experiment", "schema", "cells"} <= data.keys():
        raise SpecError(
            f"{path}: not a baseline: expected experiment, schema and cells; remove it, and write one with --accept"
        )
    return data


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises: ValueError: a key appears twice, as after a careless merge."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        twice = next(key for key in unique if [name for name, _ in pairs].count(key) > 1)
        raise ValueError(f"{twice!r} appears twice")
    return unique


def in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    location = ".".join(map(str, first["loc"]))
    return f"{location if location.isprintable() else ascii(location)}: {first['msg']}"


def _unusable(path: Path, why: str) -> Unusable:
    return Unusable(f"{path}: {why}; nothing can be compared; write a baseline with --accept")


def write(path: Path, spec: Spec, cells: Mapping[str, Entry]) -> None:
    """Replace the file. Raises: HostError."""
    with writing(path, "the baseline"):
        write_text(path, text(spec, cells))


def text(spec: Spec, cells: Mapping[str, Any]) -> str:
    """The content of the file. Floats are written exactly."""
    body = ",\n".join(f"  {json.dumps(cell)}: {json.dumps(cells[cell], sort_keys=True)}" for cell in sorted(cells))
    head = {"experiment": spec.name, "schema": _SCHEMA, "wanbench": version("wanbench"), "spec": digest(spec)}
    first = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    return f'{{\n{first} "cells": {{\n{body}\n }}\n}}\n'
