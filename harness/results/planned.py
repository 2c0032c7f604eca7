"""The plan of a run as it was last run, read from its folder; no host is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError

FILE = "spec.resolved.json"


@dataclass(frozen=True)
class Planned:
    """What is stored of a plan.

    Attributes:
        spec: plain data, overrides applied. auto: what `auto` became where it ran.
        cells: name of every cell by its identity.
    """

    spec: Mapping[str, Any]
    auto: Mapping[str, Any]
    cells: Mapping[str, str]


def read(folder: Path) -> Planned:
    """The plan in a run's folder. Raises: SpecError."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        cells = {str(entry["key"]): str(entry["cell"]) for entry in data["cells"]}
        return Planned(dict(data["spec"]), dict(data.get("auto", {})), cells)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError(
            f"{path}: cannot be read ({_reason(error)}); `wanbench run` of the same experiment writes it"
        ) from None


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
