"""Refuse cells whose parts do not fit together: network, workers, testbed, optimizer and algorithm."""

from collections.abc import Mapping
from typing import Any

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.plan.cell import Cell, TrainingCell
from wanbench.harness.plan.network import check_keys
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.edits import TimelineError
from wanbench.harness.timeline.schedule import Schedule, schedule_for_program
from wanbench.netprofiles import PlacementError
from wanbench.workloads.algorithms.base import AlgorithmError, Setting
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.compute.optim import OptimizerError, SGDConfig, configured

_SIMULATED_TCP = ("reno", "cubic", "bbr")


def check(cell: Cell, spec: Spec, where: str) -> None:
    """Refuse a cell that cannot run, before anything starts. Raises: SpecError."""
    check_network(cell, spec, where)
    if not isinstance(cell, TrainingCell):
        schedule_for_program(cell.changes, cell.emulated_network, cell.profile, where)
        return
    with as_spec_error(f"{where}: {_at(cell.axes)}", ValueError):  # also PredictError
        _ = cell.law_inputs
    _check_timeline(cell, where)
    if cell.failures.mtbf != "none":
        _check_kill(cell, f"{where}: failures.mtbf")
    _check_testbed(cell, where)
    _check_algorithm(cell, where)


def _check_algorithm(cell: TrainingCell, where: str) -> None:
    """Check the optimiser's settings, then let the algorithm check the cell."""
    try:
        setting = setting_of(cell)
    except OptimizerError as error:
        raise SpecError(f"{where}: train.{error}") from None
    if cell.is_baseline:
        return
    if cell.algorithm().datagrams and cell.mtu < MTU:
        raise SpecError(f"{where}: network.mtu: {cell.kind!r} sends datagrams of {MTU} bytes; expected at least {MTU}")
    with as_spec_error(f"{where}: {_at(cell.axes)}", AlgorithmError):
        cell.algorithm().check(setting)


def setting_of(cell: TrainingCell) -> Setting:
    """What an algorithm can check. Raises: OptimizerError."""
    optimizer = configured(cell.train.plain(), cell.steps)
    sgd = optimizer if isinstance(optimizer, SGDConfig) else None
    return Setting(
        workers=cell.workers,
        collective=cell.comm.collective,
        optimizer=optimizer.optimizer,
        momentum=sgd.momentum if sgd else 0.0,
        nesterov=bool(sgd and sgd.nesterov),
        weight_decay=optimizer.weight_decay,
        shapes=cell.workload.shapes,
        rtt_s=cell.law_inputs.rtt_s,
    )


def refusal(cell: TrainingCell) -> str | None:
    """Why an algorithm cannot train a cell; None if it can."""
    try:
        cell.algorithm().check(setting_of(cell))
    except (AlgorithmError, OptimizerError) as error:
        return str(error)
    return None


def _check_timeline(cell: TrainingCell, where: str) -> None:
    """Check that each change names an existing place and happens while this cell runs."""
    if not cell.changes:
        return
    for index, change in enumerate(cell.changes):
        _check_change(cell, change, f"{where}: timeline.{index}")
    with as_spec_error(where, TimelineError):
        Schedule(cell.changes, cell.emulated_network, cell.profile, cell.rate_scale).check()


def _check_change(cell: TrainingCell, change: Change, entry: str) -> None:
    if change.at_step is not None and change.at_step >= cell.steps:
        raise SpecError(
            f"{entry}.at: {_at(cell.axes)} has {cell.steps} steps; expected an earlier step, or a larger run.window"
        )
    if change.kind == "slow" and cell.workload.step_time_s is None:
        raise SpecError(f'{entry}.slow: real compute cannot be slowed; set workload.step_time, such as "300ms"')
    if change.kind == "kill":
        _check_kill(cell, f"{entry}.kill")


def _check_kill(cell: TrainingCell, key: str) -> None:
    """Only connections between all pairs can be made again without a lost worker."""
    if cell.comm.collective != "direct":
        got = f"comm.collective = {cell.comm.collective!r}"
        raise SpecError(f'{key}: {got}: its group cannot be formed again; expected "direct"')
    if cell.algorithm().datagrams:
        raise SpecError(f"{key}: {cell.kind!r} sends datagrams, whose group cannot be formed again; remove it")


def _at(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in axes.items())


def check_network(cell: Cell, spec: Spec, where: str) -> None:
    """Check that the keys fit the profile, and that every worker has a site. Raises: SpecError."""
    check_keys(spec.network, where, alone=cell.is_baseline)
    with (
        as_spec_error(f"{where}: {_at(cell.axes)}", ValueError),
        as_spec_error(f"{where}: network.place", PlacementError),
    ):
        _ = cell.placement


def _check_testbed(cell: TrainingCell, where: str) -> None:
    """The virtual testbed needs the time of a step, and a TCP that it simulates."""
    if cell.testbed != "virtual":
        return
    if cell.workload.step_time_s is None:
        raise SpecError(
            f"{where}: workload: {cell.workload.name} has no compute model, which testbed virtual needs; "
            'set workload.step_time, such as "300ms"'
        )
    if cell.workers > 1 and cell.tcp.congestion not in _SIMULATED_TCP:
        raise SpecError(
            f"{where}: network.tcp.congestion: {cell.tcp.congestion!r} is not simulated; expected "
            f'{", ".join(map(repr, _SIMULATED_TCP))}, or an emulated testbed: run.testbed = "netns"'
        )
