"""One repetition of any cell on any testbed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.probe import TOLERANCES, probe
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.rep import command, train
from wanbench.harness.results.columns import Row
from wanbench.harness.testbeds.base import EmulatedSlot, Group, Slot, WorkerDied


def measure(cell: Cell, rep: int, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None) -> Row:
    """Run the repetition and return its judged row. Arguments and errors are those of `rep.train.measure`."""
    if isinstance(cell, CommandCell):  # the plan refuses commands on simulated testbeds
        return command.measure(cell, rep, cast(EmulatedSlot, slot), folder, control, report)
    assert isinstance(cell, TrainingCell)
    return train.measure(cell, rep, slot, folder, control, report)


SINGLE_PACKETS = (
    "note: the workers' devices have no segmentation offload: the relay moves single packets, about 0.5 Gbit/s per core"
)


def probe_cell(cell: Cell, slot: Slot, group: Group | None = None) -> dict[str, Any]:
    """Return the report of a probe on the emulated network of a cell, and whether the emulator moves segments.

    The host has to be idle. Raises: RepFailed.

    Args:
        group: the workers; default: those that the cell needs.
    """
    emulated, network = cast(EmulatedSlot, slot), train.network_of(cell)
    try:
        handles = emulated.prepare(group or train.group_of(cell))
        emulated.emulator.apply(network)
        report = probe(network, handles, tolerance=TOLERANCES[emulated.emulator.name]).to_json()
        return report | {"offload": emulated.emulator.stats().offload}
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        emulated.discard()
        raise RepFailed(f"probe: {str(error) or 'a worker did not answer'}") from None
