"""The noise of this host: the change that it measures between equal sides. Written by `check --aa`, read by checks.

There is one file per host, $XDG_STATE_HOME/wanbench/noise.json (~/.local/state/wanbench/noise.json), because noise is a
property of the machine and not of the repository. The file names its machine and is not used on another one.
"""

import json
import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wanbench.harness.errors import SpecError, writing
from wanbench.harness.gate.baseline import in_words
from wanbench.harness.gate.exact import WIRE_BAND
from wanbench.harness.gate.rule import NOISE_LIMIT, margin
from wanbench.harness.results.disk import write_json
from wanbench.harness.run.manifest import cpu_model

_SCHEMA = 1
ALL_CELLS = "all cells"


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    schema_: Annotated[Literal[1], Field(alias="schema")]
    host: dict[str, str | int | None]
    experiments: dict[str, dict[str, Annotated[float, Field(ge=0)]]]


@dataclass(frozen=True)
class HostNoise:
    """The relative change that a first look sees between equal sides, as `harness.gate.rule.noise` measures it.

    Attributes:
        cells: by name of cell. remark: the reason if no noise is known, else None.
    """

    cells: Mapping[str, float]
    remark: str | None = None

    def doubt(self, cell: str, max_slowdown: float) -> str:
        """Why no slowdown of a cell can be excluded; empty if its noise is small enough for that."""
        noise, limit = self.cells.get(cell, 0.0), max(NOISE_LIMIT, max_slowdown / 2)
        if noise <= limit:
            return ""
        return (
            f"equal sides differed by {100 * noise:.1f} % here; the limit is {100 * limit:g} %; measure the noise "
            "again with --aa on a quieter host"
        )

    def margin(self, cell: str, limit: float) -> float:
        """The change of a cell that does not count yet: the limit, or twice its noise if that is larger."""
        return float(margin(limit, self.cells.get(cell, 0.0)))

    def wire_band(self, cell: str) -> float:
        """The relative change of the bytes that a program sends in a step that does not count."""
        return self.margin(wire_of(cell), WIRE_BAND)


def wire_of(cell: str) -> str:
    """The name of the noise of a cell's bytes on the wire."""
    return f"{cell}: bytes on the wire"


def default_path() -> Path:
    """The path of this host's file."""
    home = os.path.expanduser("~")  # "~" for a user without HOME and without a name
    state = os.environ.get("XDG_STATE_HOME") or f"{'/nonexistent' if home == '~' else home}/.local/state"
    return Path(state) / "wanbench" / "noise.json"


def read(path: Path, experiment: str, on: str) -> HostNoise:
    """Read the noise of an experiment's cells on this host, `on` a testbed and emulator.

    Raises:
        SpecError: the file is not a noise file.
    """
    unknown = (
        f"the noise of this host is not known; measure it with `wanbench check {shlex.quote(experiment)} --aa` ({path})"
    )
    stored = _load(path)
    if stored is None:
        return HostNoise({}, unknown)
    if stored.host != _host():
        return HostNoise({}, f"{path}: not used, because another machine measured it ({stored.host['cpu']}); {unknown}")
    cells = stored.experiments.get(f"{experiment} on {on}", {})
    return HostNoise(cells, None if cells else unknown)


def write(path: Path, experiment: str, on: str, cells: Mapping[str, float]) -> None:
    """Add or replace the cells of one experiment, and drop those of another machine. Raises: HostError."""
    stored = _load(path)
    experiments = stored.experiments if stored is not None and stored.host == _host() else {}
    key = f"{experiment} on {on}"
    experiments[key] = experiments.get(key, {}) | dict(cells)
    with writing(path, "the noise of this host", "; use --noise FILE"):
        write_json(path, {"schema": _SCHEMA, "host": _host(), "experiments": experiments})


def _load(path: Path) -> _File | None:
    try:
        return _File.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = in_words(error) if isinstance(error, ValidationError) else error
        raise SpecError(f"{path}: not a noise file of `check --aa`: {why}; remove it, and measure again") from None


def _host() -> dict[str, Any]:
    """The properties that two machines must share to count as the same."""
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": platform.release().partition(".")[0]}
