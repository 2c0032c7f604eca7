"""Which repetitions run side by side, and how long a run takes. Pure."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wanbench.harness.emulators.plan import MTU, PAYLOAD_SHARE, SEGMENT_BYTES, EmulatedNetwork, build
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.plan.law import all_reduce_time, gloo_rounds, predict, rep_duration_s, sent_bytes
from wanbench.harness.plan.pacing import paces
from wanbench.harness.timeline.changes import planned_outage_s

# Processor seconds to carry a segment and its acknowledgement: emulator, both ends' TCP stacks, copies and additions.
# Measured as the busy time of a 2-core machine, with four workers, paced `direct`, 0.1 to 1 Gbit/s, 0 and 100 ms, and
# divided by its `slowness` of 1.2. What a host really needs is learned from its first repetitions (run/room.py).
_CPU_S_PER_SEGMENT, _CPU_S_PER_BYTE = 125e-6, 1.7e-9
_TSO_S, _TSO_PACKETS = 2**-10, 2  # Linux sends a paced connection's bytes of 1 ms together, at least two packets
_CPU_S_PER_PACKET = 30e-6  # if the emulator moves single packets
_CPU_SHARE_PER_WORKER = 0.01
# To compress a byte of a vector, and to restore it from the messages of three others: top-k. With one message other
# compressors need 1 to 9 ns (benchmarks/compressors.py).
_COMPRESSION_S_PER_BYTE = 6e-9
_SIMULATED_S, _SIMULATED_S_PER_STEP = 0.02, 1e-4  # per simulated repetition, and per worker and step in it
_SIMULATED_S_PER_HOP = 4e-4  # one hop of all pieces of a ring, or half a round of gloo (measured: 0.23 to 0.47 ms)
_FLOPS = 20e9  # per second, one core, small layers
_LEARNING_S = 1e-3  # per real gradient, besides its matrix products
GUESSED_STEP_S = 5.0  # one step of real compute
WARM_ROUNDS = 3  # all-reduces before training begins
GUESSED_COMMAND_S = 30.0  # a program, until one like it has ended
SETTLE_S = 8.0  # of a repetition's time, in which it starts; afterwards its load can be measured
_SLOTS = 10  # emulated repetitions at a time, at most
_SIMULATORS_S = 2.0  # until processes that simulate have imported torch
# Above this share of the cores, emulated packets are late, and steps that compete for a processor take longer.
BUDGET_SHARE = 0.6
MEMORY_SHARE = 0.8  # of the available memory; the rest is for what the estimate does not know
_WORKER_BYTES = 120 << 20  # private memory of a worker in addition to its vectors; generous
_PROGRAM_BYTES = 16 << 20  # of a bare interpreter
_SIMULATOR_BYTES = 128 << 20  # private memory of a process that simulates, with a data set; measured: 105 MiB
_SIMULATED_BYTES = 256 << 10  # of a simulated worker: stack, rows, its share of a round of messages
_VECTORS = 4  # parameters, momentum, gradient, accumulator


@dataclass(frozen=True)
class Capacity:
    """What a host has: its processors, its available memory, and how slow it is.

    Attributes:
        slowness: processor time of the same work, as a multiple of that on the machine of the constants above.
        budget: share of the processors that may be busy.
    """

    cores: int
    memory_bytes: float
    slowness: float = 1.0
    budget: float = BUDGET_SHARE

    @property
    def cpu_limit(self) -> float:
        """The number of processors that may be busy."""
        return self.budget * self.cores

    @property
    def starts(self) -> int:
        """How many emulated repetitions may start at a time. To start one keeps a processor busy."""
        return max(1, self.cores // 2)

    @property
    def slots(self) -> int:
        """How many emulated repetitions may run at a time: a processor for the emulator of each."""
        return min(self.cores, _SLOTS)

    @property
    def memory_limit(self) -> float:
        """The bytes that repetitions may use."""
        return MEMORY_SHARE * self.memory_bytes


@dataclass(frozen=True)
class Load:
    """The predicted cost of a repetition.

    Attributes:
        cpus: average number of busy processors; infinite if it needs the whole host.
        memory_bytes: of its workers and of the packets on their way.
        peak_cpus: number of busy processors while all workers send at their rate; 0 without a rate.
        emulated: whether both are for a machine of slowness 1.
        simulated: whether it may be late, so that processors can be fully busy.
    """

    seconds: float
    cpus: float
    memory_bytes: float = 0.0
    peak_cpus: float = 0.0
    emulated: bool = False
    simulated: bool = False

    def on(self, host: Capacity) -> Load:
        """The load on this host."""
        if not self.emulated:
            return self
        slow = host.slowness
        return replace(self, cpus=self.cpus * slow, peak_cpus=self.peak_cpus * slow, emulated=False)


def load_of(cell: Cell) -> Load:
    """Estimate the load from the step-time law and the bytes that cross the emulator."""
    memory = memory_bytes(cell)
    if isinstance(cell, CommandCell):
        return Load(GUESSED_COMMAND_S, math.inf, memory)
    assert isinstance(cell, TrainingCell)
    if cell.testbed == "virtual":
        seconds = _SIMULATED_S + _simulated_step_s(cell) * cell.workers * cell.steps + _simulated_hops_s(cell)
        return Load(seconds, 1.0, _SIMULATOR_BYTES + memory, simulated=True)
    seconds = expected_seconds(cell)
    if cell.workload.step_time_s is None:
        return Load(seconds, math.inf, memory)
    if cell.workers == 1:
        return Load(seconds, _CPU_SHARE_PER_WORKER, memory)
    inputs = cell.law_inputs
    messages = [inputs.message_bytes] * inputs.messages if inputs.buckets is None else [m for m, _ in inputs.buckets]
    sent = cell.workers * sum(sent_bytes(inputs, nbytes) for nbytes in messages) / inputs.period  # bytes per step
    per_byte = _cpu_s_per_byte(cell, build(cell.profile, cell.placement))
    computing = cell.workers * (_CPU_SHARE_PER_WORKER + (0.5 if cell.workload.learns else 0.0))
    computing += compressing_cpus(cell)
    return Load(
        seconds,
        cpus=computing + per_byte * sent / _pace_s(cell),
        memory_bytes=memory,
        peak_cpus=computing + per_byte * cell.workers * (inputs.rate_bytes_per_s or 0.0) / PAYLOAD_SHARE,
        emulated=True,
    )


def _pace_s(cell: TrainingCell) -> float:
    """The mean time between the messages of a step and the next; workers that differ may not wait for each other."""
    inputs = cell.law_inputs
    alone = inputs.step_times_s and cell.algorithm().promises.goes_on
    return inputs.base_step_time_s if alone else predict(inputs).step_time_s


def compressing_cpus(cell: TrainingCell) -> float:
    """The average number of processors that compress, in an emulated cell."""
    if cell.algorithm().compressor is None or cell.workers == 1 or cell.workload.step_time_s is None:
        return 0.0
    nbytes = cell.workload.message_bytes / cell.law_inputs.period
    return cell.workers * _COMPRESSION_S_PER_BYTE * nbytes / predict(cell.law_inputs).step_time_s


def _cpu_s_per_byte(cell: TrainingCell, network: EmulatedNetwork) -> float:
    """Processor seconds per byte, in segments as long as the fastest path and the pace allow, or in single packets."""
    if cell.emulator != "relay":
        return _CPU_S_PER_PACKET / MTU
    longest = max((network.longest_segment(*pair) for pair in network.links), default=SEGMENT_BYTES)
    if cell.comm.collective == "direct":
        pace = max((pace for pace, _ in paces(network, 0) if pace is not None), default=math.inf)
        longest = min(longest, max(pace * _TSO_S // MTU, _TSO_PACKETS) * MTU)
    return _CPU_S_PER_SEGMENT / max(longest, MTU) + _CPU_S_PER_BYTE


def memory_bytes(cell: Cell) -> float:
    """Memory for a cell: vectors, two copies of each message in flight and of the next one, and packets on the way."""
    if isinstance(cell, CommandCell):  # in addition to what the program itself allocates, which is unknown
        return cell.workers * (_WORKER_BYTES + cell.processes * _PROGRAM_BYTES)
    assert isinstance(cell, TrainingCell)
    model = cell.workload.message_bytes
    in_flight = cell.algorithm().in_flight * cell.messages_per_sync
    started = in_flight + cell.messages_per_sync
    if cell.testbed == "virtual":
        vectors = (_VECTORS + started) * model if cell.workload.learns else 0
        return cell.workers * (_SIMULATED_BYTES + vectors)
    own = cell.workers * (_WORKER_BYTES + (_VECTORS + 2 * started) * model)
    if cell.workers == 1:
        return own
    return own + min(cell.workers * in_flight * model, _room(build(cell.profile, cell.placement)))


def worker_bytes(cell: TrainingCell) -> float:
    """Bytes of one worker's vectors: parameters, gradients, and two copies of each message in flight and the next."""
    started = (cell.algorithm().in_flight + 1) * cell.messages_per_sync
    return (_VECTORS + 2 * started) * cell.workload.message_bytes


def _room(network: EmulatedNetwork) -> float:
    """Bytes that fit into the paths and their buffers; infinite if a path has no rate."""
    rates = {pair: network.rate(*pair) for pair in network.links}
    flying = sum(math.inf if rate is None else rate * network.links[p].delay_ns / 1e9 for p, rate in rates.items())
    queues = (*network.up, *network.down, *(link.queue for link in network.links.values()))
    return flying + sum(queue.buffer_bytes for queue in queues if queue.rate_bytes_per_s is not None)


def expected_seconds(cell: TrainingCell) -> float:
    """How long a repetition takes by the law, with its start and warm-up."""
    if cell.workload.step_time_s is None:
        return GUESSED_STEP_S * cell.steps
    inputs, after_fill = cell.law_inputs, cell.steps - cell.window_begin
    return rep_duration_s(inputs, after_fill) + _warm_s(cell) + planned_outage_s(cell.changes) + 1.0


def _warm_s(cell: TrainingCell) -> float:
    """Seconds of the rounds that open TCP's windows, and of one more that shows that they no longer grow."""
    if cell.workers == 1 or cell.algorithm().datagrams:
        return 0.0
    latency_s, wire_s = all_reduce_time(cell.law_inputs, cell.law_inputs.message_bytes)
    return (WARM_ROUNDS + 1) * (latency_s + warm_in_flight(cell) * wire_s)


def warm_in_flight(cell: TrainingCell) -> int:
    """The number of messages at a time that open TCP's windows as far as training needs them: at most a path full."""
    if cell.comm.collective == "gloo":
        return 2 * cell.channels  # gloo assigns operations to its channels round-robin: two per channel use all of them
    inputs, together = cell.law_inputs, cell.algorithm().in_flight * cell.messages_per_sync
    if inputs.rate_bytes_per_s is not None and inputs.message_bytes:
        path_full = math.ceil(inputs.rate_bytes_per_s * inputs.rtt_s / inputs.message_bytes)
        together = min(together, path_full)
    return max(2 * cell.messages_per_sync, together)


def _simulated_step_s(cell: TrainingCell) -> float:
    """Processor seconds of one worker's step; gradients are computed only if the workload trains a model."""
    if not cell.workload.learns:
        return _SIMULATED_S_PER_STEP
    backward = 2 * sum(tensor.backward_work for tensor in cell.workload.parameters)  # a multiply-add is two operations
    return _LEARNING_S + 1.5 * backward * cell.train.batch_size / _FLOPS


def _simulated_hops_s(cell: TrainingCell) -> float:
    """Processor seconds for the hops of a ring and the rounds of gloo, which are simulated one after another."""
    if cell.workers == 1:
        return 0.0
    operations = cell.messages_per_sync * (WARM_ROUNDS + cell.steps / cell.algorithm().period_steps)
    if cell.comm.collective == "ring":
        return _SIMULATED_S_PER_HOP * 2 * (cell.workers - 1) * operations
    if cell.comm.collective == "gloo":
        return _SIMULATED_S_PER_HOP * 2 * gloo_rounds(cell.workers, cell.message_bytes) * operations
    return 0.0


def fits(load: Load, running: Sequence[Load], host: Capacity) -> bool:
    """True if a repetition can start beside those running. A repetition alone always fits."""
    return first_that_fits([load], running, host) is not None


def first_that_fits(loads: Iterable[Load], running: Sequence[Load], host: Capacity) -> int | None:
    """The place of the first repetition that can start beside those running; None if none can.

    What runs is added up once, because thousands can be waiting.
    """
    others = [each.on(host) for each in running]
    cpus, memory = sum(each.cpus for each in others), sum(each.memory_bytes for each in others)
    simulated, cpu_limit, memory_limit = all(each.simulated for each in others), host.cpu_limit, host.memory_limit
    for place, each in enumerate(loads):
        load = each.on(host)
        processors = host.cores if simulated and load.simulated else cpu_limit
        if not others or (load.cpus + cpus <= processors and load.memory_bytes + memory <= memory_limit):
            return place
    return None


def slots_for(loads: Sequence[Load], jobs: int | None, host: Capacity) -> int:
    """The largest number of repetitions at a time: `jobs` or a default; of simulations, at most one per processor."""
    if loads and all(load.simulated for load in loads):
        return min(jobs or host.cores, host.cores)
    return jobs or host.slots


def simulators(loads: Sequence[Load], jobs: int | None, host: Capacity) -> int:
    """The number of processes for these simulations. 1 if more would save less time than they need to start."""
    slots = min(slots_for(loads, jobs, host), len(loads))
    saved_s = sum(load.seconds for load in loads) - makespan(loads, slots, host)
    return slots if saved_s > _SIMULATORS_S else 1


def makespan(loads: Sequence[Load], slots: int, host: Capacity) -> float:
    """Predicted seconds until all repetitions end, if they start in order under the rules of a real run."""
    pending = [load.on(host) for load in loads]
    emulated = any(load.emulated for load in loads)
    running: list[tuple[float, int]] = []
    active: dict[int, Load] = {}
    started: deque[float] = deque(maxlen=host.starts)
    now, serial = 0.0, 0
    while pending or running:
        next_s = started[0] + SETTLE_S if emulated and active and len(started) == host.starts else now
        chosen = first_that_fits(pending, list(active.values()), host) if len(active) < slots else None
        if chosen is not None and next_s <= now:
            load = pending.pop(chosen)
            heapq.heappush(running, (now + load.seconds, serial))
            active[serial] = load
            started.append(now)
            serial += 1
        elif chosen is not None and next_s < running[0][0]:
            now = next_s
        else:
            now, ended = heapq.heappop(running)
            del active[ended]
    return now
