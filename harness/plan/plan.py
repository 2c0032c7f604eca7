"""The plan of a run: all cells of a spec, and the values that the host chose for `auto`. Stored with the run."""

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
        auto: the values of `run.testbed` and `run.emulator` that the host chose.
    """

    spec: Spec
    cells: tuple[Cell, ...]
    auto: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, enough to read a run without any host. It includes the traces of a timeline."""
        timeline = next(([*cell.timeline] for cell in self.cells if cell.timeline), None)
        spec = self.spec.to_dict() | ({} if timeline is None else {"timeline": timeline})
        return {"spec": spec, "auto": dict(self.auto), "cells": [_entry(cell) for cell in self.cells]}


def make(spec: Spec, where: str, host: Host) -> Plan:
    """Make the plan of a spec; for the arguments see `expand`. Raises: SpecError."""
    recording = _RecordingHost(host)
    cells = expand(spec, where, recording)
    return Plan(spec, tuple(cells), recording.answers)


def _entry(cell: Cell) -> dict[str, Any]:
    return {"key": cell.key, "cell": cell.slug, "base_key": cell.base_key, "axes": dict(cell.axes)}


class _RecordingHost:
    """Records the answers of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.answers: dict[str, Any] = {}

    def testbed(self) -> str:
        testbed = self._host.testbed()
        self.answers["testbed"] = testbed
        return testbed

    def emulator(self, testbed: str) -> str:
        emulator = self._host.emulator(testbed)
        self.answers.setdefault("emulator", {})[testbed] = emulator
        return emulator
