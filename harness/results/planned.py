"""The plan of the last run, read from its folder without asking the host."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.tables import RunTable

FILE = "spec.resolved.json"
_REPEATS = RunTable().repeats


@dataclass(frozen=True)
class PlannedCell:
    """One cell: its name, the identity of its one-worker cell, and its swept values."""

    name: str
    base_key: str
    axes: Mapping[str, Any]


@dataclass(frozen=True)
class Planned:
    """A stored plan.

    Attributes:
        spec: plain data, with overrides applied. auto: the values chosen for `auto` on the host that ran it.
        cells: by identity. repeats: number of repetitions of every cell.
        part: whether other plans measured in the same folder, as those of `advise` and `learn` do.
    """

    spec: Mapping[str, Any]
    auto: Mapping[str, Any]
    cells: Mapping[str, PlannedCell]
    repeats: int = _REPEATS
    part: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The name of every cell by its identity."""
        return {key: cell.name for key, cell in self.cells.items()}


def read(folder: Path) -> Planned:
    """Read the plan in a run's folder. Raises: SpecError."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        cells = {
            str(entry["key"]): PlannedCell(str(entry["cell"]), str(entry["base_key"]), dict(entry["axes"]))
            for entry in data["cells"]
        }
        spec = dict(data["spec"])
        repeats = int(spec.get("run", {}).get("repeats", _REPEATS))
        return Planned(spec, dict(data.get("auto", {})), cells, repeats, bool(data.get("part")))
    except (OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise SpecError(f"{path}: cannot be read ({reason}); run the same experiment again to write it") from None


def auto_of(folder: Path) -> Mapping[str, Any]:
    """The values that `auto` had in a folder's last run; none if it has no plan that can be read."""
    try:
        return read(folder).auto
    except SpecError:
        return {}
