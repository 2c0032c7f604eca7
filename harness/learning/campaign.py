"""Runs a design: tunes the learning rates, trains every seed, measures step times. Finished trajectories are kept.

Its cells are ordinary cells on the simulated clock, made by ordinary specs.

The base comes first, then the conditions, so that an interrupted run has the most important part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from wanbench.harness.errors import CellsFailed, SpecError
from wanbench.harness.learning.design import BASE, Condition, Design
from wanbench.harness.learning.recording import Recording, Trajectory, curve
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.plan.plan import Plan
from wanbench.harness.plan.registry import parameter_names
from wanbench.harness.rep.sources import DATA, OWN_CODE
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import ThisHost
from wanbench.harness.run.together import measure_all
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.registry import data_digest

_LOSSES = 100  # means of the loss in a trajectory
_WORTH = 0.005  # of accuracy: for less, no other rate is trained with every seed
_TIMED = "100 steps"  # long enough for the losses of a path to average out
_ABOUT = (
    "description",
    "workload",
    "network",
    "train",
    "workers",
    "seeds",
    "seed",
    "tune",
    "profiles",
    "conditions",
)


@dataclass
class Campaign:
    """One run of a design in one folder.

    Args:
        options: passed to `measure_all`: jobs, fresh and keep.
    """

    design: Design
    folder: RunFolder
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Recording:
        """Train what is not finished, and return the recording. Raises: CellsFailed, HostError, Interrupted."""
        tried: list[Trial] = []
        trained: list[Trial] = []  # with every seed
        final: list[Trial] = []
        for conditions in ([self.design.base], self.design.conditions):
            tuned = [trial for condition in conditions if condition.lr for trial in tuning(self.design, condition)]
            self._measure([trial.cell for trial in tuned], tune=True)
            tried += tuned
            final += self._settled(conditions, tried, trained)
        times = timed(self.design)
        self._measure(times, tune=True)
        return self._recorded(tried + [trial for trial in trained if trial not in final], final, times)

    def _measure(self, cells: Sequence[TrainingCell], *, tune: bool) -> None:
        if not cells:
            return
        todo: dict[str, TrainingCell] = {}
        for cell in cells:
            todo.setdefault(cell.key, cell)  # conditions can have the same cell
        plan = Plan(spec_of(self.design, tuning=tune), tuple(todo.values()), part=True)
        tally = measure_all(plan, self.folder, draw=False, **self.options)
        self.options["fresh"] = False  # only at the beginning
        if tally.failed:
            raise CellsFailed(
                f"{self.folder.path}: {len(tally.failed)} trajectories failed; the same command continues"
            )

    def _rows(self) -> dict[tuple[str, int], Row]:
        content = self.folder.read()
        return {
            (row["cell_key"], row["seed"]): row for row in (*content.earlier, *content.rows) if row["status"] == "ok"
        }

    def _settled(self, conditions: Sequence[Condition], tried: Sequence[Trial], trained: list[Trial]) -> list[Trial]:
        """Train every seed with the best rates until no other rate promises more, and return these trials.

        A rate that suits the seed of tuning can diverge with others.
        """
        while new := [trial for trial in self._chosen(conditions, tried, trained) if trial not in trained]:
            self._measure([trial.cell for trial in new], tune=False)
            trained += new
        return self._chosen(conditions, tried, trained)

    def _chosen(self, conditions: Sequence[Condition], tried: Sequence[Trial], trained: Sequence[Trial]) -> list[Trial]:
        """The trials of every seed, with the rates that are best by what was trained until now."""
        rows = self._rows()
        chosen_trials: list[Trial] = []
        for condition in conditions:
            grid_of = condition.name if condition.lr else BASE
            tuned = best([t for t in tried if t.condition == grid_of], rows, trained, self.design.seeds)
            rates = {s: [tuned[s]] for s in condition.settings or self.design.settings}
            if condition.lr_of is not None:
                rates = {s: [Rates(tuned[condition.lr_of].lr, pair.outer_lr)] for s, (pair,) in rates.items()}
            chosen_trials += trials(spec_of(self.design), self.design, condition, rates)
        return chosen_trials

    def _recorded(self, tried: Sequence[Trial], final: Sequence[Trial], times: Sequence[TrainingCell]) -> Recording:
        rows = self._rows()
        ends = at_an_end(tried, final)
        step_time_s: dict[str, dict[str, float]] = {}
        for cell in times:
            row = rows[cell.key, cell.seed]
            step_time_s.setdefault(str(cell.network.name), {})[cell.label] = float(f"{row['step_time_s']:.5g}")
        manifest = self.folder.manifest()
        trained = [rows[trial.cell.key, trial.cell.seed] for trial in (*tried, *final)]
        # All trajectories ran the same code, or `verify` refuses them.
        sources = {name: digest for row in trained for name, digest in (row["sources"] or {}).items()}
        return Recording(
            design=self.design.name,
            about=about(self.design),
            made={
                **{key: manifest[key] for key in ("versions", "python", "machine", "cpu", "git")},
                "code": sorted({row["code"] for row in trained}),
                "data": data_hash(final[0].cell),
                "sources": {name: digest for name, digest in sources.items() if name not in {OWN_CODE, DATA}},
            },
            tuned=[_tuned(trial, row) for trial in tried for (key, _), row in rows.items() if key == trial.cell.key],
            trajectories=[
                self._trajectory(trial, rows[trial.cell.key, seed], (trial.condition, trial.setting) in ends)
                for trial in final
                for seed in range(trial.cell.seed, trial.cell.seed + self.design.seeds)
            ],
            step_time_s=step_time_s,
        )

    def _trajectory(self, trial: Trial, row: Row, at_end: bool) -> Trajectory:
        rep = self.folder.cell_folder(trial.cell) / f"rep-{row['rep']}"
        return Trajectory(
            setting=trial.setting,
            condition=trial.condition,
            kind=trial.cell.kind,
            params=dict(trial.cell.params),
            workers=trial.cell.workers,
            lr=trial.rates.lr,
            outer_lr=trial.rates.outer_lr,
            at_end=at_end,
            seed=row["seed"],
            **curve(rep, max(1, trial.cell.steps // _LOSSES)),
        )


def about(design: Design) -> dict[str, Any]:
    """What a recording says of its design. The folder of the data is left out, because it differs between hosts."""
    plain = design.plain()
    plain["workload"] = {key: value for key, value in design.workload.items() if key != "data"}
    return {key: plain[key] for key in _ABOUT if key in plain}


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


def tuning(design: Design, condition: Condition) -> Iterator[Trial]:
    """The trials of one seed that choose the rates of a condition."""
    rates = {setting: grid(design, condition, setting) for setting in condition.settings or design.settings}
    return trials(spec_of(design, tuning=True), design, condition, rates)


def grid(design: Design, condition: Condition, setting: str) -> list[Rates]:
    """The rates that are tried for a setting under a condition with a grid of its own."""
    table = design.settings[setting]
    kind = str(table.get("kind", setting))
    outer = "outer_lr" in parameter_names(kind) and "outer_lr" not in table
    outer_rates: list[float | None] = [*design.tune.outer_lr] if outer and design.tune.outer_lr else [None]
    return [Rates(*pair) for pair in product(condition.lr or (), outer_rates)]


def trials(spec: Spec, design: Design, condition: Condition, chosen: Mapping[str, Iterable[Rates]]) -> Iterator[Trial]:
    """The trials of a condition: each setting with each of its rates. Raises: SpecError."""
    return (
        Trial(setting, condition.name, pair, _cell(spec, design, condition, setting, pair))
        for setting, rates in chosen.items()
        for pair in rates
    )


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
    swept = [cell for cell in expand(changed, where, ThisHost()) if not cell.is_baseline]
    if len(swept) != 1:
        raise SpecError(f"{where}: expected one combination of parameters, not {len(swept)}; name each setting")
    cell = swept[0]
    assert isinstance(cell, TrainingCell)
    return replace(cell, label=setting, axes={"algorithm": setting, "workers": cell.workers, **axes})


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


def timed(design: Design) -> list[TrainingCell]:
    """Short cells that measure the simulated step time of every setting on every network of the design."""
    recipe = {key: value for key, value in design.train.items() if key not in {"until", "eval_every"}}
    spec = spec_of(design, tuning=True).override({"train": recipe, "run.window": _TIMED})
    conditions = [Condition(name=profile, network={"profile": profile}) for profile in design.profiles]
    rates = Rates(design.tune.lr[0])
    return [
        _cell(spec, design, condition, setting, rates) for condition, setting in product(conditions, design.settings)
    ]


def best(
    tried: Iterable[Trial], rows: Mapping[tuple[str, int], Row], trained: Iterable[Trial] = (), seeds: int = 1
) -> dict[str, Rates]:
    """The rates with the highest final accuracy by setting; of equal ones those with the smallest final loss.

    Rates with which every seed was trained count by the means over the seeds, the others by the seed of tuning. Where
    a seed diverged, the rates are worse than all others.
    """
    every = {(trial.condition, trial.setting, trial.rates): trial.cell for trial in trained}
    scores: dict[str, tuple[tuple[float, float], Rates]] = {}
    for trial in tried:
        cell = every.get((trial.condition, trial.setting, trial.rates))
        keys = [(cell.key, cell.seed + i) for i in range(seeds)] if cell else [(trial.cell.key, trial.cell.seed)]
        score = _score(trial.setting, [rows[key] for key in keys], _WORTH if cell else 0.0)
        if trial.setting not in scores or score > scores[trial.setting][0]:
            scores[trial.setting] = score, trial.rates
    return {setting: rates for setting, (_, rates) in scores.items()}


def _score(setting: str, rows: Sequence[Row], head_start: float) -> tuple[float, float]:
    accuracies = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    losses = [row["final_loss"] for row in rows if row["final_loss"] is not None]
    if min(len(accuracies), len(losses)) < len(rows):
        raise SpecError(f"{setting}: the workload {rows[0]['workload']} learns nothing, so nothing can be tuned")
    return (mean(accuracies) + head_start, -mean(losses)) if all(map(math.isfinite, losses)) else (-math.inf, -math.inf)


def at_an_end(tried: Iterable[Trial], final: Iterable[Trial]) -> set[tuple[str, str]]:
    """(condition, setting) whose tuned learning rate is the smallest or largest of its grid."""
    grids: dict[tuple[str, str], set[float]] = {}
    for trial in tried:
        grids.setdefault((trial.condition, trial.setting), set()).add(trial.rates.lr)
    return {
        key
        for trial in final
        if (key := (trial.condition, trial.setting)) in grids and trial.rates.lr in (min(grids[key]), max(grids[key]))
    }


def data_hash(cell: TrainingCell) -> str | None:
    """Hash of the data that a cell trains on: of its folder, or of what this machine provides; None if bundled."""
    if cell.task.data is None:
        return data_digest(cell.task.plain())
    digest = hashlib.sha256()
    for path in sorted(file for file in Path(cell.task.data).rglob("*") if file.is_file()):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _tuned(trial: Trial, row: Row) -> dict[str, Any]:
    loss = row["final_loss"]
    return {
        "setting": trial.setting,
        "condition": trial.condition,
        "lr": trial.rates.lr,
        "outer_lr": trial.rates.outer_lr,
        "seed": row["seed"],
        "accuracy": row["accuracy"],
        "final_loss": float(f"{loss:.4g}") if loss is not None and math.isfinite(loss) else None,
    }
