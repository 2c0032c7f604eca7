"""The plan of a run: all cells of a spec, and the values that the host chose for `auto`. Stored with the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from wanbench.harness.plan import auto
from wanbench.harness.plan.cell import Cell, TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec


@dataclass(frozen=True)
class Plan:
    """A spec and its cells.

    Attributes:
        cells: the one-worker cells first, then the sweep in the order of its axes.
        auto: the values of `run.testbed`, `run.emulator` and `workload.payload_scale` that the host chose.
        why_scale: the reason for the last one; None if the host did not choose it.
        part: whether other plans measure in the same folder, so that rows of other cells there are no earlier spec's.
    """

    spec: Spec
    cells: tuple[Cell, ...]
    auto: Mapping[str, Any] = field(default_factory=dict)
    why_scale: str | None = None
    part: bool = False

    @property
    def unequal_steps(self) -> str | None:
        """That cells which learn will train unequal numbers of steps, and what `until` makes them equal; else None."""
        compared: dict[str, set[int]] = {}
        for cell in self.cells:
            if isinstance(cell, TrainingCell) and cell.workers > 1 and cell.workload.learns:
                condition = {axis: value for axis, value in cell.axes.items() if axis != "algorithm"}
                compared.setdefault(str(condition), set()).add(cell.steps)
        steps = sorted(set().union(*(counts for counts in compared.values() if len(counts) > 1)))
        if not steps:
            return None
        return (
            f"accuracy: cells train {steps[0]} to {steps[-1]} steps (windows hold whole periods), which are not "
            f'compared; train.until = "{steps[-1]} steps" makes them equal'
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, enough to read a run without any host. It includes the traces of a timeline."""
        timeline = next(([*cell.timeline] for cell in self.cells if cell.timeline), None)
        spec = self.spec.to_dict() | ({} if timeline is None else {"timeline": timeline})
        cells = [
            {"key": cell.key, "cell": cell.slug, "base_key": cell.base_key, "axes": dict(cell.axes)}
            for cell in self.cells
        ]
        return {"spec": spec, "auto": dict(self.auto), **({"part": True} if self.part else {}), "cells": cells}


def make(spec: Spec, where: str, host: auto.Host, earlier: Mapping[str, Any] | None = None) -> Plan:
    """Make the plan of a spec.

    Args:
        where, host: see `expand`.
        earlier: the values of `auto` in the run that this plan continues. Its payload scale is kept: with another one,
            every finished cell would be another cell.

    Raises:
        SpecError: the spec is wrong.
    """
    chosen: dict[str, Any] = {}
    if spec.workload.payload_scale != "auto":
        return Plan(spec, tuple(expand(spec, where, host, chosen)), chosen)
    if spec.gate.require:
        auto.refuse_gated(spec, where)

    @cache
    def at(value: float) -> tuple[Cell, ...]:
        return tuple(expand(spec.override({"workload.payload_scale": value}, where), where, host, chosen))

    value, why = auto.scale_chosen(at, host.capacity, (earlier or {}).get("payload_scale"))
    if why is not None:
        chosen["payload_scale"] = value
    return Plan(spec.override({"workload.payload_scale": value}, where), at(value), chosen, why)
