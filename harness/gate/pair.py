"""Both sides of a comparison under way: the cells to measure next, and the results so far."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.gate.measured import Sides, other_machine
from wanbench.harness.gate.names import name, name_of
from wanbench.harness.gate.noise import HostNoise
from wanbench.harness.gate.rounds import CannotRun, Measurement, RunRequest, turns
from wanbench.harness.gate.sides import Side
from wanbench.harness.plan.cell import Cell
from wanbench.harness.spec.tables import GateTable


class Pair:
    """Both sides of a comparison under way."""

    def __init__(self, cells: Sequence[Cell], order: RunRequest, folder: Path, base: Side, head: Side) -> None:
        """`cells`: those to compare. `folder`: for the results of both sides; earlier ones are removed."""
        self._cells = cells
        self._done = 0
        for side in (base, head):
            shutil.rmtree(folder / side.role, ignore_errors=True)
        self.base = Measurement(base, order, folder / base.role)
        self.head = Measurement(head, order, folder / head.role)
        self.simulated = all(cell.testbed == "virtual" for cell in cells)
        self.files = {"base": str(self.base.folder.path), "head": str(self.head.folder.path)}

    def measure(self, rounds: int, only: Collection[str]) -> None:
        """Measure up to this many rounds of the cells in `only` (all if empty), except failed and exact ones.

        Raises: as `Measurement.measure`; CannotRun only for the base.
        """
        for index, side in turns(self._done, rounds, self.base, self.head):
            leave_out = self._left_out(only) if index else ()
            print(f"check: round {index + 1} of {rounds}, {side.side.role}", file=sys.stderr, flush=True)
            if leave_out is None:
                break
            self._measure(side, index + 1, leave_out)
        self._done = rounds
        for side in (self.base, self.head):  # if the host was busy: once more, after the other cells
            doubtful = {name(row) for row in side.rows() if row["status"] == "invalid"}
            leave_out = self._left_out(doubtful)
            if doubtful and leave_out is not None:
                self._measure(side, rounds, leave_out)

    def _measure(self, side: Measurement, repeats: int, leave_out: Sequence[Mapping[str, Any]]) -> None:
        try:
            side.measure(repeats, leave_out)
        except CannotRun as error:
            if side is self.head:
                raise SpecError(f"head ({side.side.title}): {error}") from None
            raise

    def sides(self, gate: GateTable, noise: HostNoise) -> Sides:
        """The results of both sides so far."""
        machines = [side.folder.manifest() for side in (self.base, self.head)]
        return Sides(self.base.rows(), self.head.rows(), gate, other_machine(*machines), noise.wire_band)

    def _left_out(self, only: Collection[str]) -> list[Mapping[str, Any]] | None:
        """Axes of the cells to leave out, None if no other cell is left. One-worker cells follow the others."""
        settled = self._settled()
        swept = [cell for cell in self._cells if not cell.is_baseline]
        names = {name_of(cell): cell for cell in swept}
        keep = [cell for cell in names if cell not in settled and (not only or cell in only)]
        if not keep and any(cell not in settled for cell in names):
            keep = [next(cell for cell in names if cell not in settled)]  # so that its one-worker cell is measured
        return [dict(cell.axes) for text, cell in names.items() if text not in keep] if keep else None

    def _settled(self) -> set[str]:
        """Cells that more repetitions cannot change: failed on one side, or simulated."""
        rows = [*self.base.rows(), *self.head.rows()]
        return {name(row) for row in rows if row["status"] == "failed" or row["testbed"] == "virtual"}
