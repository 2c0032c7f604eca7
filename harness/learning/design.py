"""A fractional design: which settings are trained under which conditions, with which learning rates and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.experiment import Name
from wanbench.harness.spec.library import read
from wanbench.harness.spec.refusals import validated
from wanbench.harness.spec.tables import Table
from wanbench.netprofiles import FileError, did_you_mean
from wanbench.netprofiles.user_file import parse_toml

BASE = "base"
REFERENCE = "ssgd"  # what every method is compared with
DESIGNS = Path(__file__).parent / "designs"  # those that ship with the package

Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=40)]
Grid = Annotated[list[float], Field(min_length=1)]


class Condition(Table):
    """[[conditions]]: what differs from the base.

    Attributes:
        settings: the settings that are trained under it; empty is all.
        workers: N. train, network: keys that replace those of the base. without: keys of `[train]` that it leaves out.
        lr: its own grid; without it, each setting has the rates that were tuned in the base.
        lr_of: all settings have the learning rate that the base tuned for this one.
    """

    name: Label
    description: str = ""
    settings: list[str] = Field(default=[])
    workers: int | None = Field(default=None, ge=2)
    train: dict[str, Any] = Field(default={})
    network: dict[str, Any] = Field(default={})
    without: list[str] = Field(default=[])
    lr: Grid | None = None
    lr_of: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Condition:
        if self.lr is not None and self.lr_of is not None:
            raise ValueError("lr and lr_of: choose one")
        return self


class Tuning(Table):
    """[tune]: the grid, which is the same for every setting.

    Attributes:
        lr: learning rates. outer_lr: of settings that have an outer step, crossed with the learning rates.
        seed: of the trajectories that are only compared with each other; none of the recorded seeds.
    """

    lr: Grid
    outer_lr: Grid = Field(default=[])
    seed: int = Field(default=0, ge=0)


class Design(Table):
    """A whole design file.

    Attributes:
        settings: the algorithms by name, as in `[algorithms]` of a spec, where the name is the kind unless `kind` is
            given. `train` has the keys of `[train]` that an algorithm needs otherwise.
        workload, network, train: as in a spec; `train.until` and `train.eval_every` are needed.
        workers: N in the base. seeds: number of paired seeds, from `seed` on.
        profiles: networks whose simulated step times are recorded beside the trajectories.
    """

    schema_: int = Field(alias="schema", ge=1, le=1)
    name: Name
    description: str = ""
    workload: dict[str, Any]
    network: dict[str, Any] = Field(default={})
    train: dict[str, Any]
    settings: dict[Label, dict[str, Any]] = Field(min_length=1)
    workers: int = Field(default=4, ge=2)
    seeds: int = Field(default=3, ge=1)
    seed: int = Field(default=1, ge=0)
    tune: Tuning
    conditions: list[Condition] = Field(default=[])
    profiles: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _consistent(self) -> Design:
        names = [condition.name for condition in self.conditions]
        if BASE in names or len(set(names)) < len(names):
            raise ValueError(f"conditions: expected different names, and not {BASE!r}")
        for condition in self.conditions:
            for setting in (*condition.settings, *filter(None, [condition.lr_of])):
                if setting not in self.settings:
                    raise ValueError(f"conditions.{condition.name}: no setting {setting!r}")
        if self.seed <= self.tune.seed < self.seed + self.seeds:
            raise ValueError("tune.seed: expected none of the recorded seeds")
        return self

    @property
    def run_name(self) -> str:
        """The name of its run folder."""
        return f"learn-{self.name}"

    @property
    def base(self) -> Condition:
        """The condition in which everything is tuned."""
        return Condition(name=BASE, lr=self.tune.lr)

    def with_settings(self, settings: Mapping[str, Mapping[str, Any]]) -> Design:
        """A copy with only these settings and the reference, in the base alone: a user's own algorithm.

        Raises: SpecError: a name is taken.
        """
        for name in settings:
            if name in self.settings:
                raise SpecError(f"--algorithm {name}: the design {self.name} has this setting; choose another name")
        kept = {REFERENCE: self.settings[REFERENCE], **settings}
        return parse({**self.plain(), "settings": {k: dict(v) for k, v in kept.items()}, "conditions": []}, self.name)


def load(source: str) -> Design:
    """Read a built-in design by name, or a TOML file. Raises: SpecError."""
    try:
        return parse(parse_toml(read(source, DESIGNS)), source)
    except FileError as error:
        raise SpecError(f"{source}: {error}") from None


def parse(data: Mapping[str, Any], where: str) -> Design:
    """A design from plain data. Raises: SpecError."""
    return validated(Design, dict(data), where)


def narrowed(design: Design, only: Mapping[str, set[str]]) -> Design:
    """A copy with only some settings or conditions; `--only setting=...` and `--only condition=...`. Raises: SpecError.

    The setting whose learning rate others take is tuned too, and so is the reference, because the others are compared
    with it.
    """
    names = {"setting": [*design.settings], "condition": [BASE, *(condition.name for condition in design.conditions)]}
    for key, values in only.items():
        if key not in names:
            raise SpecError(f"--only {key}=...: expected setting=NAME or condition=NAME")
        for value in values:
            if value not in names[key]:
                near = did_you_mean(value, names[key], f"try {', '.join(names[key])}")
                raise SpecError(f"--only {key}={value}: not in the design {design.name}{near}")
    selected = only.get("setting", set(design.settings))
    settings = {k: v for k, v in design.settings.items() if k in selected | {REFERENCE}}
    conditions = [
        condition.model_copy(update={"settings": [s for s in condition.settings or design.settings if s in settings]})
        for condition in design.conditions
        if condition.name in only.get("condition", names["condition"])
    ]
    kept = [condition for condition in conditions if condition.settings and condition.lr_of in {None, *settings}]
    return design.model_copy(update={"settings": settings, "conditions": kept})
