"""What is left to do of a run, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.load import Load
from wanbench.harness.results.store import RunFolder
from wanbench.harness.testbeds import simulated


@dataclass
class Item:
    """One repetition to do.

    Attributes:
        host: of an emulated one-worker cell, which each host measures for itself; else None.
    """

    cell: Cell
    rep: int
    load: Load
    host: str | None = None
    began: float = 0.0


@dataclass
class Tally:
    """Outcome of the repetitions of this invocation."""

    ok: int = 0
    failed: list[str] = field(default_factory=list)


def pending(cells: Sequence[Cell], repeats: int, folder: RunFolder, host: str) -> list[Item]:
    """Repetitions without a result, in the order of execution: by repetition, then the longest first.

    A one-worker cell that another host has measured is needed again only if a cell that is divided by it has to be
    measured on this one.

    Args:
        host: the name of the host that asks.
    """
    divided = {
        cell.base_key
        for cell in cells
        if not cell.is_baseline and not all(folder.is_finished(cell, rep) for rep in range(repeats))
    }
    items = []
    for rep in range(repeats):
        todo = []
        for cell in cells:
            own = host if cell.is_baseline and not simulated(cell.testbed) else None
            if not folder.is_finished(cell, rep, own if cell.key in divided else None):
                todo.append(Item(cell, rep, cell.load, own))
        items += sorted(todo, key=lambda item: (not item.cell.is_baseline, -item.load.seconds))
    return items
