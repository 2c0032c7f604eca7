"""Every setting that a workload allows, as cells: algorithm x delay x period x compression x collective."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wanbench.harness.advise.question import REFERENCE, Question
from wanbench.harness.plan import registry as plan_registry
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.checks import refusal
from wanbench.harness.plan.collective import alternatives
from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import AlgorithmError

_DELAYS = (1, 2, 4, 8, 16, 20, 32)
_PERIODS = (2, 4, 8, 10, 20, 50, 100)
_VALUES: Mapping[str, tuple[object, ...]] = {
    "delay": _DELAYS,
    "period": _PERIODS,
    "staleness": (1, 2, 4),
    "fragments": (2,),
    "form": ("gradient", "model"),
    "compression": (
        "none",
        {"kind": "topk", "ratio": 0.01},
        {"kind": "topk", "ratio": 0.1},
        {"kind": "qsgd", "levels": 127, "bucket": 64},
        {"kind": "powersgd", "rank": 2},
        "fp16",
    ),
}
WITHOUT = ("local", "gradient-sharing")  # the first does not communicate; the second is what others are made from


@dataclass(frozen=True)
class LeftOut:
    """A setting that is not considered, and why."""

    label: str
    collective: str
    reason: str


@dataclass(frozen=True)
class Setting:
    """An algorithm and its parameters."""

    label: str
    kind: str
    params: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """Equal for settings that train alike."""
        return identity(self.kind, self.params)


def identity(kind: str, params: Mapping[str, Any]) -> str:
    """The kind and the parameters that differ from their default, as text."""
    return json.dumps([kind, plan_registry.algorithm(kind, params).changed], sort_keys=True)


def settings(recorded: Iterable[Setting]) -> list[Setting]:
    """Every setting: those of the learning library, then all others. No two have the same label."""
    by_identity = {setting.identity: setting for setting in recorded}
    for kind in registry.kinds():
        if kind in WITHOUT:
            continue
        for params in _grid(kind):
            try:
                algorithm = plan_registry.algorithm(kind, params)
            except AlgorithmError:  # values that exclude each other
                continue
            made = Setting(algorithm.label, kind, params)
            by_identity.setdefault(made.identity, made)
    return list(by_identity.values())


def _grid(kind: str) -> Iterator[dict[str, Any]]:
    """The combinations of a kind's parameters; others keep their default."""
    values = {**_VALUES, **registry.find(kind).tried}
    axes = {name: [*values[name]] for name in plan_registry.parameter_names(kind) if values.get(name)}
    yield from registry.alternatives(kind, axes)


def candidates(question: Question, of: Iterable[Setting]) -> tuple[list[TrainingCell], list[LeftOut]]:
    """The cells of settings with every collective that a user's program can have, and those that are left out."""
    cells: list[TrainingCell] = []
    left_out: list[LeftOut] = []
    for setting in of:
        cell = with_setting(question.reference, setting)
        reason = "excluded" if setting.kind in question.limits.excluded else refusal(cell)
        variants = [] if reason else list(_with_collectives(cell, question.where))
        if not variants:
            left_out.append(LeftOut(setting.label, "", reason or "no collective carries it"))
        for variant in variants:
            if question.limits.memory_bytes is None or variant.worker_bytes <= question.limits.memory_bytes:
                cells.append(variant)
            else:
                too_large = f"needs {variant.worker_bytes / 1e9:.3g} GB of memory in a worker"
                left_out.append(LeftOut(setting.label, variant.collective, too_large))
    return cells, left_out


def with_setting(reference: TrainingCell, setting: Setting) -> TrainingCell:
    """The cell of `ssgd` with another algorithm."""
    axes = {**reference.axes, "algorithm": setting.label}
    return replace(reference, label=setting.label, kind=setting.kind, params=dict(setting.params), axes=axes)


def with_collective(cell: TrainingCell) -> TrainingCell:
    """The cell, named by its collective too."""
    return replace(cell, axes={**cell.axes, "collective": cell.collective})


def reference_on_gloo(question: Question) -> TrainingCell:
    """What people run today: `ssgd` in buckets on gloo."""
    cell = with_setting(question.reference, Setting(REFERENCE, REFERENCE, {}))
    return next(variant for variant in _with_collectives(cell, question.where) if variant.collective == "gloo")


def _with_collectives(cell: TrainingCell, where: str) -> Iterator[TrainingCell]:
    if not cell.algorithm().promises.follows_law:  # it uses none, or in part: one is enough
        yield with_collective(cell)
        return
    several = len(set(cell.placement)) < cell.workers
    for alternative in alternatives(cell, where):
        # With one worker on each site, hierarchical is direct.
        if several or alternative.collective != "hierarchical":
            yield with_collective(alternative)
