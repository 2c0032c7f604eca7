"""Recordings: the trajectories of a design in one small compressed file, readable without the run."""

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.learning.design import BASE, REFERENCE
from wanbench.harness.results.disk import write_bytes
from wanbench.harness.results.evidence import EVALUATIONS

SUFFIX = ".json.gz"
RECORDED = Path(__file__).parent / "recorded"
_SCHEMA = 1


@dataclass(frozen=True)
class Trajectory:
    """Loss and accuracy of one seed by step.

    Attributes:
        lr, outer_lr: as tuned. at_end: whether the best learning rate was an end of its grid.
        diverged: whether a loss was not finite.
        steps: numbers of finished steps at the evaluations. accuracy: at each of them; None without an evaluation.
        loss_every: number of steps that each loss is a mean of. loss: means over the workers; None from the first loss
            that is not finite.
    """

    setting: str
    condition: str
    kind: str
    params: Mapping[str, Any]
    workers: int
    lr: float
    outer_lr: float | None
    at_end: bool
    seed: int
    diverged: bool
    steps: list[int]
    accuracy: list[float | None]
    loss_every: int
    loss: list[float | None]


@dataclass(frozen=True)
class Recording:
    """A recorded design.

    Attributes:
        design: its name. about: workload, recipe, seeds and grid, as in the design. made: code, versions and host.
        tuned: the outcome of every trajectory with rates that were tried. trajectories: of every seed, with the best.
        step_time_s: simulated seconds per step, by profile and setting.
    """

    design: str
    about: Mapping[str, Any]
    made: Mapping[str, Any]
    tuned: Sequence[Mapping[str, Any]] = ()
    trajectories: Sequence[Trajectory] = ()
    step_time_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def by_setting(self) -> dict[tuple[str, str], dict[int, Trajectory]]:
        """The trajectories by (condition, setting), then by seed."""
        by_setting: dict[tuple[str, str], dict[int, Trajectory]] = {}
        for trajectory in self.trajectories:
            by_setting.setdefault((trajectory.condition, trajectory.setting), {})[trajectory.seed] = trajectory
        return by_setting

    def reference_of(self, condition: str) -> dict[int, Trajectory] | None:
        """What the settings of a condition are compared with; on another network, that is the reference of the base."""
        table: Mapping[str, Any] = next((c for c in self.about.get("conditions", ()) if c["name"] == condition), {})
        elsewhere = bool(table.get("network")) and not table.keys() & {"train", "without", "workers"}
        return self.by_setting.get((condition, REFERENCE)) or (
            self.by_setting.get((BASE, REFERENCE)) if elsewhere else None
        )

    def write(self, path: Path) -> None:
        """Write the file, with equal bytes for equal data."""
        data = {"schema": _SCHEMA, **asdict(self)}
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
        write_bytes(path, gzip.compress(text.encode(), mtime=0))


def read(path: Path) -> Recording:
    """Read a recording. Raises: SpecError."""
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        if data.pop("schema") != _SCHEMA:
            raise ValueError("another schema")
        data["trajectories"] = [Trajectory(**entry) for entry in data["trajectories"]]
        return Recording(**data)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SpecError(f"{path}: not a recording of a design: {error}; run `wanbench learn` again") from None


def recorded() -> Iterator[Recording]:
    """The recordings that ship with the package."""
    for path in sorted(RECORDED.glob(f"*{SUFFIX}")):
        yield read(path)


def curve(rep: Path, every: int) -> dict[str, Any]:
    """A trajectory's lists from the files of a repetition. Raises: OSError: there are none.

    Args:
        every: number of steps that each loss is a mean of.
    """
    import pandas as pd

    evaluated = pd.read_parquet(rep / EVALUATIONS, columns=["step", "accuracy"])
    rows = pd.read_parquet(rep / "steps.parquet", columns=["rank", "step", "loss"])
    losses = [
        float(loss) for loss in rows.pivot(index="step", columns="rank", values="loss").mean(axis=1, skipna=False)
    ]
    finite = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    chunks = [losses[i : i + every] for i in range(0, len(losses), every)]
    return {
        "diverged": finite < len(losses),
        "steps": [int(step) for step in evaluated["step"]],
        "accuracy": [round(float(value), 5) for value in evaluated["accuracy"]],
        "loss_every": every,
        "loss": [
            float(f"{sum(chunk) / len(chunk):.4g}") if (i + 1) * every <= finite or finite == len(losses) else None
            for i, chunk in enumerate(chunks)
        ],
    }


_RECIPE = ("workload", "network", "train", "workers", "seeds", "seed", "tune")


def extended(old: Recording, new: Recording, about: dict[str, Any]) -> Recording:
    """The old recording with the settings and conditions of the new one, which replace those of equal name.

    The reference was trained again with every seed. Only if each of its losses and accuracies is the recorded one do
    old and new trajectories come from the same recipe, data and arithmetic, so that they can stand side by side.

    Args:
        about: of the whole design, of which `new` has a part.

    Raises:
        SpecError: the recipe differs, or the reference trained otherwise than recorded.
    """
    for key in _RECIPE:
        if old.about.get(key) != about.get(key):
            raise SpecError(
                f"{old.design}: {key} differs from what is recorded; record the whole design, without --only"
            )
    if old.by_setting.get((BASE, REFERENCE)) != new.by_setting.get((BASE, REFERENCE)):
        raise SpecError(
            f"{old.design}: {REFERENCE} trains otherwise here than recorded, so new settings cannot be compared with "
            "the old ones; record the whole design, without --only"
        )
    trained = new.by_setting.keys()
    tuned = {(entry["condition"], entry["setting"]) for entry in new.tuned}
    return replace(
        new,
        about=about,
        made={**new.made, "code": sorted({*old.made["code"], *new.made["code"]})},
        tuned=[entry for entry in old.tuned if (entry["condition"], entry["setting"]) not in tuned] + [*new.tuned],
        trajectories=[entry for entry in old.trajectories if (entry.condition, entry.setting) not in trained]
        + [*new.trajectories],
        step_time_s={
            profile: {**old.step_time_s.get(profile, {}), **new.step_time_s.get(profile, {})}
            for profile in {**old.step_time_s, **new.step_time_s}
        },
    )
