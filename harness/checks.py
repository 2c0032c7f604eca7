"""Everything about a cell that only shows when its parts come together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.errors import SpecError
from harness.predict import PredictError
from harness.spec import NetworkTable, Spec
from netprofiles import PlacementError
from workloads.algorithms.base import AlgorithmError, Setting
from workloads.optim import OptimizerError, SGDConfig, configured

if TYPE_CHECKING:
    from harness.cells import Cell

_ON_SOCKETS = ("direct", "gloo")


def check(cell: Cell, spec: Spec, where: str) -> None:
    """Raises: SpecError, one line, for parts that do not go together."""
    network = spec.network
    at = ", ".join(f"{k}={v}" for k, v in cell.axes.items())
    uniform_only, named_only = ("rtt", "rate", "jitter", "loss"), ("rtt_scale", "rate_scale")
    if network.profile == "uniform":
        _refuse(network, named_only, f"goes with a named profile; uniform takes {', '.join(uniform_only)}", where)
        if not cell.is_baseline and network.rtt is None:
            raise SpecError(f"{where}: network.rtt: the uniform profile needs an RTT; set it or sweep rtt")
    else:
        takes = f"{network.profile!r} takes {', '.join(named_only)}"
        _refuse(network, uniform_only, f"goes with the uniform profile; {takes}", where)
    try:
        cell.placement()
        cell.law_inputs()
    except PlacementError as error:
        raise SpecError(f"{where}: network.place: {error}") from None
    except (ValueError, PredictError) as error:
        raise SpecError(f"{where}: {at}: {error}") from None
    _check_testbed(cell, spec, where)
    _check_algorithm(cell, where, at)


def _check_algorithm(cell: Cell, where: str, at: str) -> None:
    """The optimiser's settings, and what the algorithm says to all that surrounds it."""
    try:
        optimizer = configured(cell.config["train"], cell.steps)
    except OptimizerError as error:
        raise SpecError(f"{where}: train.{error}") from None
    if cell.is_baseline:
        return
    sgd = optimizer if isinstance(optimizer, SGDConfig) else None
    setting = Setting(
        workers=cell.workers,
        collective=cell.config["comm"]["collective"],
        optimizer=optimizer.optimizer,
        momentum=sgd.momentum if sgd else 0.0,
        nesterov=bool(sgd and sgd.nesterov),
        weight_decay=optimizer.weight_decay,
        shapes=cell.workload().shapes,
    )
    try:
        cell.algorithm().check(setting)
    except AlgorithmError as error:
        raise SpecError(f"{where}: {at}: {error}") from None


def _check_testbed(cell: Cell, spec: Spec, where: str) -> None:
    """The emulated testbeds run what exists on sockets; the virtual one needs to know how long a step takes."""
    collective = spec.comm.collective
    if spec.run.testbed != "virtual":
        if collective not in _ON_SOCKETS and not cell.is_baseline:
            raise SpecError(
                f"{where}: comm.collective: {collective!r} exists on testbed virtual only; "
                f'expected {" or ".join(map(repr, _ON_SOCKETS))}, or run.testbed = "virtual"'
            )
    elif cell.workload().step_time_s is None:
        raise SpecError(
            f"{where}: workload: {cell.workload().name} has no compute model, which testbed virtual needs; "
            'set workload.step_time, such as "300ms"'
        )


def _refuse(network: NetworkTable, keys: Iterable[str], why: str, where: str) -> None:
    for key in keys:
        if getattr(network, key) is not None:
            raise SpecError(f"{where}: network.{key}: {why}")
