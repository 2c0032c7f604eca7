"""Which repetitions run side by side, and how long it will all take. Pure."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass

from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.plan.law import predict, rep_duration_s
from wanbench.harness.timeline.changes import planned_outage_s

# Processor seconds, measured on one 2-core machine; only used to decide how many cells may run together.
_CPU_S_PER_PACKET = 30e-6  # relay, both ends' TCP stacks and the copies
_CPU_SHARE_PER_WORKER = 0.01
_SIMULATED_S, _SIMULATED_S_PER_STEP = 0.02, 1e-4  # of a simulated repetition, and of one worker's step in it
_FLOPS = 20e9  # of one core in small layers
_LEARNING_S = 1e-3  # of a step that learns, beside its products
GUESSED_STEP_S = 5.0  # of real compute
WARM_ROUNDS = 3  # all-reduces before training begins
GUESSED_COMMAND_S = 30.0  # of a program whose like has not ended yet
_PACKET_BYTES = 1448
_ACK_FACTOR = 1.5
# Beyond this share of the cores, emulation gets late, and steps that compete for a processor get longer.
BUDGET_SHARE = 0.6


@dataclass(frozen=True)
class Load:
    """What a repetition costs: predicted seconds, and processors it keeps busy on average."""

    seconds: float
    cpus: float


def load_of(cell: Cell) -> Load:
    """By the step-time law and the bytes that cross the emulator."""
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
    sent = 2 * (cell.workers - 1) * message / inputs.period  # bytes a step, all workers
    packets = sent / _PACKET_BYTES * _ACK_FACTOR
    cpus = packets * _CPU_S_PER_PACKET / predict(inputs).step_time_s
    learning = cell.workers * 0.5 if cell.workload.learns else 0.0
    return Load(seconds, cpus + cell.workers * _CPU_SHARE_PER_WORKER + learning)


def expected_seconds(cell: TrainingCell) -> float:
    """How long a repetition takes by the law, starting and warming up included."""
    if cell.workload.step_time_s is None:
        return GUESSED_STEP_S * cell.steps
    inputs, after_fill = cell.law_inputs, cell.steps - cell.window_begin
    warm = (WARM_ROUNDS + 1) * predict(inputs).all_reduce_s
    return rep_duration_s(inputs, after_fill) + warm + planned_outage_s(cell.changes) + 1.0


def _simulated_step_s(cell: TrainingCell) -> float:
    """Processor seconds of one worker's step; gradients are computed where something is learned."""
    if not cell.workload.learns:
        return _SIMULATED_S_PER_STEP
    backward = 2 * sum(tensor.backward_work for tensor in cell.workload.parameters)  # a multiply-add is two operations
    return _LEARNING_S + 1.5 * backward * cell.train.batch_size / _FLOPS


def fits(load: Load, running: Sequence[Load], cores: int) -> bool:
    """True if a repetition may start beside those running; one alone always may."""
    return not running or load.cpus + sum(other.cpus for other in running) <= BUDGET_SHARE * cores


def makespan(loads: Sequence[Load], slots: int, cores: int) -> float:
    """Predicted seconds until all are through, started in order under the same rules as the real ones."""
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
