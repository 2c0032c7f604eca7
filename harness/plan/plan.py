"""What a run is going to do: all cells of a spec, with what `auto` became on the host. Stored with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wanbench.harness.plan.auto import Host
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec


@dataclass(frozen=True)
class Plan:
    """A spec and its cells.

    Attributes:
        cells: the one-worker cells first, then the sweep in the order of its axes.
        auto: what `run.testbed` and `run.emulator` became, where the spec leaves that to the host.
    """

    spec: Spec
    cells: tuple[Cell, ...]
    auto: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data from which a run is read without asking any host; traces of a timeline are in it."""
        timeline = next(([*cell.timeline] for cell in self.cells if cell.timeline), None)
        spec = self.spec.to_dict() | ({} if timeline is None else {"timeline": timeline})
        return {"spec": spec, "auto": dict(self.auto), "cells": [_entry(cell) for cell in self.cells]}


def make(spec: Spec, where: str, host: Host) -> Plan:
    """The plan of a spec; arguments as of `expand`. Raises: SpecError."""
    asked = _Asked(host)
    cells = expand(spec, where, asked)
    return Plan(spec, tuple(cells), asked.answers)


def _entry(cell: Cell) -> dict[str, Any]:
    return {"key": cell.key, "cell": cell.slug, "base_key": cell.base_key, "axes": dict(cell.axes)}


class _Asked:
    """Notes what a host answers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.answers: dict[str, Any] = {}

    def testbed(self) -> str:
        found = self._host.testbed()
        self.answers["testbed"] = found
        return found

    def emulator(self, testbed: str) -> str:
        found = self._host.emulator(testbed)
        self.answers.setdefault("emulator", {})[testbed] = found
        return found
