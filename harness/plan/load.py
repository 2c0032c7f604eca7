"""Which repetitions run side by side, and how long a run takes. Pure."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass

from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.plan.law import predict, rep_duration_s
from wanbench.harness.timeline.changes import planned_outage_s

# Processor seconds, measured on one 2-core machine; they only decide how many cells run together.
_CPU_S_PER_PACKET = 30e-6  # relay, both ends' TCP stacks and the copies
_CPU_SHARE_PER_WORKER = 0.01
_SIMULATED_S, _SIMULATED_S_PER_STEP = 0.02, 1e-4  # per simulated repetition, and per worker and step in it
_FLOPS = 20e9  # per second, one core, small layers
_LEARNING_S = 1e-3  # per real gradient, besides its matrix products
GUESSED_STEP_S = 5.0  # one step of real compute
WARM_ROUNDS = 3  # all-reduces before training begins
GUESSED_COMMAND_S = 30.0  # a program, until one like it has ended
_PACKET_BYTES = 1448
_ACK_FACTOR = 1.5
# Above this share of the cores, emulated packets are late, and steps that compete for a processor take longer.
BUDGET_SHARE = 0.6


@dataclass(frozen=True)
class Load:
    """The cost of a repetition: predicted seconds, and the average number of busy processors."""

    seconds: float
    cpus: float


def load_of(cell: Cell) -> Load:
    """Estimate the load from the step-time law and the bytes that cross the emulator."""
    if isinstance(cell, CommandCell):
        return Load(GUESSED_COMMAND_S, float(os.cpu_count() or 1))
    assert isinstance(cell, TrainingCell)
    if cell.testbed == "virtual":
        return Load(_SIMULATED_S + _simulated_step_s(cell) * cell.workers * cell.steps, 1.0)
    seconds = expected_seconds(cell)
    if cell.workload.step_time_s is None:
        return Load(seconds, float(os.cpu_count() or 1))
    if cell.workers == 1:
        return Load(seconds, _CPU_SHARE_PER_WORKER)
    inputs = cell.law_inputs
    message = inputs.messages * inputs.message_bytes
    sent = 2 * (cell.workers - 1) * message / inputs.period  # bytes per step, all workers
    packets = sent / _PACKET_BYTES * _ACK_FACTOR
    cpus = packets * _CPU_S_PER_PACKET / predict(inputs).step_time_s
    learning = cell.workers * 0.5 if cell.workload.learns else 0.0
    return Load(seconds, cpus + cell.workers * _CPU_SHARE_PER_WORKER + learning)


def expected_seconds(cell: TrainingCell) -> float:
    """How long a repetition takes by the law, with its start and warm-up."""
    if cell.workload.step_time_s is None:
        return GUESSED_STEP_S * cell.steps
    inputs, after_fill = cell.law_inputs, cell.steps - cell.window_begin
    warm = (WARM_ROUNDS + 1) * predict(inputs).all_reduce_s
    return rep_duration_s(inputs, after_fill) + warm + planned_outage_s(cell.changes) + 1.0


def _simulated_step_s(cell: TrainingCell) -> float:
    """Processor seconds of one worker's step; gradients are computed only if the workload trains a model."""
    if not cell.workload.learns:
        return _SIMULATED_S_PER_STEP
    backward = 2 * sum(tensor.backward_work for tensor in cell.workload.parameters)  # a multiply-add is two operations
    return _LEARNING_S + 1.5 * backward * cell.train.batch_size / _FLOPS


def fits(load: Load, running: Sequence[Load], cores: int) -> bool:
    """True if a repetition can start beside those running. A repetition alone always fits."""
    return not running or load.cpus + sum(other.cpus for other in running) <= BUDGET_SHARE * cores


def makespan(loads: Sequence[Load], slots: int, cores: int) -> float:
    """Predicted seconds until all repetitions end, if they start in order under the rules of a real run."""
    pending = list(loads)
    running: list[tuple[float, int]] = []
    active: dict[int, Load] = {}
    now, serial = 0.0, 0
    while pending or running:
        chosen = next(
            (i for i, load in enumerate(pending) if len(active) < slots and fits(load, list(active.values()), cores)),
            None,
        )
        if chosen is not None:
            load = pending.pop(chosen)
            heapq.heappush(running, (now + load.seconds, serial))
            active[serial] = load
            serial += 1
            continue
        now, ended = heapq.heappop(running)
        del active[ended]
    return now
