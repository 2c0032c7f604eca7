"""One repetition of any kind on any testbed, and the probe of its network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.probe import TOLERANCES, probe
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.repetition import CommandRepetition, Repetition, TrainingRepetition
from wanbench.harness.rep import command, train
from wanbench.harness.results.columns import Row
from wanbench.harness.testbeds.base import Group, Slot, WorkerDied
from wanbench.harness.testbeds.group import group_of
from wanbench.harness.testbeds.slot import WorkerSlot

SINGLE_PACKETS = (
    "note: the workers' devices have no segmentation offload: the relay moves single packets, about 0.5 Gbit/s per core"
)
_MEASURES: Mapping[type[Repetition], Callable[..., Row]] = {
    TrainingRepetition: train.measure,
    CommandRepetition: command.measure,  # the plan refuses commands on simulated testbeds
}


def measure(repetition: Repetition, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None) -> Row:
    """Run the repetition and return its judged row. Arguments and errors are those of `rep.train.measure`."""
    return _MEASURES[type(repetition)](repetition, slot, folder, control, report)


def probe_network(repetition: Repetition, slot: Slot, group: Group | None = None) -> dict[str, Any]:
    """Return the report of a probe on the network of a repetition, and whether the emulator moves segments.

    The host has to be idle. Raises: RepFailed.

    Args:
        group: the workers; default: those that the repetition needs.
    """
    emulated, network = cast(WorkerSlot, slot), repetition.network
    try:
        handles = emulated.prepare(group or group_of(repetition))
        emulated.emulator.apply(network)
        report = probe(network, handles, tolerance=TOLERANCES[emulated.emulator.name]).to_json()
        return report | {"offload": emulated.emulator.stats().offload}
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        emulated.discard()
        raise RepFailed(f"probe: {str(error) or 'a worker did not answer'}") from None
