"""The baseline, a file to commit: sorted JSON with one line per cell, so that a diff shows the changed cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError, writing
from wanbench.harness.gate.exact import Entry
from wanbench.harness.results.store import write_text

_SCHEMA = 1


def read(path: Path) -> dict[str, Entry] | None:
    """Read the entries by name of cell; None if the file does not exist. Raises: SpecError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: not a baseline: {error}; write one with `check --baseline {path} --accept`") from None
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise SpecError(f"{path}: not a baseline: expected schema {_SCHEMA}, got {found!r}")
    cells = data.get("cells")
    if not isinstance(cells, dict) or not all(
        isinstance(entry, dict) and "testbed" in entry for entry in cells.values()
    ):
        raise SpecError(f"{path}: not a baseline: expected cells, each with its testbed; write them with `--accept`")
    return cells


def write(path: Path, experiment: str, cells: Mapping[str, Entry]) -> None:
    """Replace the file. Raises: HostError."""
    with writing(path, "the baseline"):
        write_text(path, text(experiment, cells))


def text(experiment: str, cells: Mapping[str, Any]) -> str:
    """The content of the file. Floats are written exactly."""
    lines = [f"  {json.dumps(cell)}: {json.dumps(cells[cell], sort_keys=True)}" for cell in sorted(cells)]
    body = ",\n".join(lines)
    return f'{{\n "experiment": {json.dumps(experiment)},\n "schema": {_SCHEMA},\n "cells": {{\n{body}\n }}\n}}\n'
