"""The cells of a design: ordinary cells on the simulated clock, made by ordinary specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from wanbench.harness.errors import SpecError
from wanbench.harness.learning.design import BASE, Condition, Design
from wanbench.harness.plan.cell import Cell, TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.plan.known import parameter_names
from wanbench.harness.run.host import ThisHost
from wanbench.harness.spec.experiment import Spec

_TIMED = "100 steps"  # long enough for the losses of a path to average out


class Rates(NamedTuple):
    """The learning rate, and that of the outer step; None if the algorithm has none, or keeps its default."""

    lr: float
    outer_lr: float | None = None


@dataclass(frozen=True)
class Trial:
    """One setting under one condition with given rates; its repetitions are the seeds."""

    setting: str
    condition: str
    rates: Rates
    cell: TrainingCell


def grid(design: Design, condition: Condition, setting: str) -> list[Rates]:
    """The rates that are tried for a setting under a condition with a grid of its own."""
    table = design.settings[setting]
    kind = str(table.get("kind", setting))
    outer = "outer_lr" in parameter_names(kind) and "outer_lr" not in table
    outer_rates: list[float | None] = [*design.tune.outer_lr] if outer and design.tune.outer_lr else [None]
    return [Rates(*pair) for pair in product(condition.lr or (), outer_rates)]


def _algorithm(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a setting as in `[algorithms]` of a spec."""
    return {key: value for key, value in table.items() if key != "train"}


def spec_of(design: Design, *, tuning: bool = False) -> Spec:
    """The design as a spec, without the conditions and the training keys of single settings.

    While tuning, only the last step is evaluated.
    """
    data: dict[str, Any] = {
        "schema": 1,
        "name": design.run_name,
        "description": design.description,
        "workload": design.workload,
        "network": design.network,
        "algorithms": {setting: _algorithm(table) for setting, table in design.settings.items()},
        "sweep": {"workers": [design.workers]},
        "train": {key: value for key, value in design.train.items() if key != "eval_every" or not tuning},
        "run": {
            "testbed": "virtual",
            "repeats": 1 if tuning else design.seeds,
            "seed": design.tune.seed if tuning else design.seed,
        },
    }
    return Spec.from_dict(data, design.name)


def trials(spec: Spec, design: Design, condition: Condition, chosen: Mapping[str, Iterable[Rates]]) -> Iterator[Trial]:
    """The trials of a condition: each setting with each of its rates. Raises: SpecError."""
    for setting, rates in chosen.items():
        for each in rates:
            yield Trial(setting, condition.name, each, _cell(spec, design, condition, setting, each))


def _cell(spec: Spec, design: Design, condition: Condition, setting: str, rates: Rates) -> TrainingCell:
    table = _algorithm(design.settings[setting]) | ({} if rates.outer_lr is None else {"outer_lr": rates.outer_lr})
    network = {f"network.{key}": value for key, value in condition.network.items()}
    own = {**design.settings[setting].get("train", {}), **condition.train}
    train = {f"train.{key}": value for key, value in own.items()}
    where = f"{design.name}: {condition.name}: {setting}"
    dropped = ["network.rtt"] if "profile" in condition.network and "rtt" in design.network else []
    dropped += [f"train.{key}" for key in condition.without]
    changed = spec.override(
        {
            "algorithms": {setting: table},
            "sweep": {"workers": [condition.workers or design.workers]},
            "train.lr": rates.lr,
            **train,
            **network,
        },
        where,
        dropped,
    )
    axes: dict[str, Any] = {} if condition.name == BASE else {"condition": condition.name}
    axes |= {"lr": rates.lr} | ({} if rates.outer_lr is None else {"outer": rates.outer_lr})
    (cell,) = _swept(changed, where)
    return replace(cell, label=setting, axes={"algorithm": setting, "workers": cell.workers, **axes})


def _swept(spec: Spec, where: str) -> list[TrainingCell]:
    cells: list[Cell] = [cell for cell in expand(spec, where, ThisHost()) if not cell.is_baseline]
    if len(cells) != 1:
        raise SpecError(f"{where}: expected one combination of parameters, not {len(cells)}; name each setting")
    return [cell for cell in cells if isinstance(cell, TrainingCell)]


def timed(design: Design) -> list[TrainingCell]:
    """Short cells that measure the simulated step time of every setting on every network of the design."""
    recipe = {key: value for key, value in design.train.items() if key not in {"until", "eval_every"}}
    spec = spec_of(design, tuning=True).override({"train": recipe, "run.window": _TIMED})
    cells = []
    for profile, setting in product(design.profiles, design.settings):
        condition = Condition(name=profile, network={"profile": profile})
        cells.append(_cell(spec, design, condition, setting, Rates(design.tune.lr[0])))
    return cells
