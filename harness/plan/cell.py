"""One point of a sweep, resolved. Its content decides its identity; the place where it is stored does not.

A training cell runs an algorithm in wanbench's own loop. A command cell runs a user's program, and knows only how to
call it.
"""

import hashlib
import json
import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from wanbench.harness.emulators.plan import EmulatedNetwork, buffer_that_holds, build, payload_share
from wanbench.harness.plan import registry, repetition
from wanbench.harness.plan.conditions import connections_of, effective_conditions, why_unknown, windows_bytes
from wanbench.harness.plan.host_tcp import host_tcp
from wanbench.harness.plan.law import (
    Collective,
    PredictInputs,
    all_reduce_time,
    fill_steps,
    one_shot_bytes,
    predict,
    rep_duration_s,
    round_trips,
    sent_bytes,
    window_steps,
)
from wanbench.harness.plan.load import Load
from wanbench.harness.plan.network import CellNetwork
from wanbench.harness.plan.pacing import paces
from wanbench.harness.plan.repetition import (
    DEFAULT_WARMUP,
    GUESSED_STEP_S,
    WARM_ROUNDS,
    Command,
    CommandRepetition,
    Inputs,
    Repetition,
    TrainingRepetition,
)
from wanbench.harness.plan.ring_order import ring_order
from wanbench.harness.spec.command import name_of
from wanbench.harness.spec.tables import (
    TUNED,
    CommTable,
    ContainersTable,
    FailuresTable,
    RunTable,
    TcpTable,
    TrainTable,
    VirtualTable,
    WorkloadTable,
    count,
)
from wanbench.harness.timeline.changes import Change, described, planned_outage_s
from wanbench.netprofiles import Delay, Profile, place
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.comm.mesh import UNSENT_S
from wanbench.workloads.comm.windows import in_turns
from wanbench.workloads.registry import WorkloadInfo

BASELINE = "one-worker"
_LONGEST = 200  # bytes of the readable part of a folder; file systems take 255
_DEFAULT_SEED, _DEFAULT_WINDOW = RunTable().seed, count(RunTable().window)
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
_GUESSED_COMMAND_S = 30.0  # a program, until one like it has ended
_WORKER_BYTES = 120 << 20  # private memory of a worker in addition to its vectors; generous
_PROGRAM_BYTES = 16 << 20  # of a bare interpreter
_SIMULATOR_BYTES = 128 << 20  # private memory of a process that simulates, with a data set; measured: 105 MiB
_SIMULATED_BYTES = 256 << 10  # of a simulated worker: stack, rows, its share of a round of messages
_VECTORS = 4  # parameters, momentum, gradient, accumulator


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The fields that all cells share.

    Attributes:
        label: name of the algorithm and its settings, such as "dts-d20-p4". kind, params: the algorithm.
        workers: N. seed: seed of the first repetition.
        testbed: netns, docker or virtual. emulator: netem or relay, None on virtual.
        axes: the swept values of this cell, for people: {"algorithm": "ssgd", "workers": 4, "rtt": "100ms"}.
        timeline: the changes during the cell, as plain data; `changes` has them as types.
        base_key: identity of the one-worker cell that scalability is computed from.
    """

    label: str
    kind: str
    params: Mapping[str, Any]
    workers: int
    seed: int
    testbed: str
    emulator: str | None
    network: CellNetwork = field(default_factory=CellNetwork)
    containers: ContainersTable = field(default_factory=ContainersTable)
    axes: Mapping[str, Any] = field(default_factory=dict)
    timeline: tuple[Mapping[str, Any], ...] = ()
    base_key: str = ""

    @property
    @abstractmethod
    def rate_scale(self) -> float:
        """The factor that rates are multiplied by."""

    @abstractmethod
    def _own_identity(self) -> Mapping[str, Any]:
        """The fields of the identity that this type of cell adds or replaces."""

    def identity(self) -> dict[str, Any]:
        """Plain data: everything that influences the measurement, except empty fields and defaults."""
        fields = {
            "label": self.label,
            "kind": self.kind,
            "params": dict(self.params),
            "workers": self.workers,
            "seed": None if self.seed == _DEFAULT_SEED else self.seed,
            "testbed": self.testbed,
            "emulator": self.emulator,
            "network": self.network.identity(),
            "containers": self.containers.identity(),
            "timeline": list(self.timeline),
            **self._own_identity(),
        }
        return {key: value for key, value in fields.items() if value not in (None, "", {}, [])}

    @cached_property
    def key(self) -> str:
        """Hash of the identity."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def slug(self) -> str:
        """Folder name: readable, made unique by the hash, and independent of the order of the axes."""
        parts = [self.label, f"w{self.workers}"]
        parts += [f"{k}{v}" for k, v in sorted(self._further_axes().items())]
        text = re.sub(r"[^\w.%+=:@-]", "", "-".join(parts).replace("/", "_"))[:80]
        return f"{text.encode()[:_LONGEST].decode(errors='ignore')}-{self.key[:6]}"

    @property
    def title(self) -> str:
        """One line for people."""
        axes = [f"{v}" if k == "rtt" else f"{k}={v}" for k, v in self._further_axes().items()]
        return " ".join([f"{self.label:14}", f"w{self.workers}", *axes])

    @property
    def is_baseline(self) -> bool:
        """True for the one-worker cell that scalability is computed from."""
        return self.label == BASELINE

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """What a repetition reads besides the code of wanbench."""

    @abstractmethod
    def repetition(self, rep: int) -> Repetition:
        """Resolve a repetition."""

    def columns(self, rep: int) -> dict[str, Any]:
        """The columns of a repetition's row that are known before it is measured, except empty ones."""
        alone = self.workers == 1
        return {
            "cell": self.slug,
            "cell_key": self.key,
            "base_key": self.base_key,
            "code": "",
            "rep": rep,
            "testbed": self.testbed,
            "emulator": None if alone else self.emulator,
            "algorithm": self.label,
            "kind": self.kind,
            "params": dict(self.params),
            "workers": self.workers,
            "profile": None if alone else self.network.name,
            **self.network.conditions(self.profile, self.placement),
            "tcp": None if alone else self.tcp.congestion,
            "host_tcp": None if alone or self.tcp.host == TUNED else self.tcp.host,
            "mtu": None if self.mtu == MTU else self.mtu,
            "seed": self.seed + rep,
            "timeline": described(self.changes),
            "events": [] if self.changes else None,
            "axes": dict(self.axes),
        }

    trains: ClassVar[bool] = False
    """Whether workers train in wanbench's own loop."""

    @property
    def users_names(self) -> set[str]:
        """The user's own model and algorithm, such as "mine:Method"."""
        return set()

    @property
    def loses_workers(self) -> bool:
        """Whether workers are killed, so that the others have to go on without them."""
        return False

    @property
    def compressing_cpus(self) -> float:
        """The average number of processors that compress, as far as it is known."""
        return 0.0

    def forecast(self) -> dict[str, Any]:
        """What `wanbench plan` prints of a repetition: its steps, and its step time by the law."""
        return dict.fromkeys(("steps", "window_steps", "collective", "channels", "predicted_step_time_s", "bound"))

    @property
    @abstractmethod
    def load(self) -> Load:
        """The predicted cost of a repetition."""

    @property
    @abstractmethod
    def memory_bytes(self) -> float:
        """The predicted memory of a repetition."""

    def _further_axes(self) -> dict[str, Any]:
        """The axes that the label and the number of workers do not show."""
        return {key: value for key, value in self.axes.items() if key not in {"algorithm", "workers"}}

    def tables(self) -> Mapping[str, object]:
        """The tables of the spec that this cell was made from, by name."""
        return {"network": self.network.table, "containers": self.containers, "run": self}

    @cached_property
    def profile(self) -> Profile:
        """The network, with the payload scale applied."""
        return self.network.profile(self.workers, self.rate_scale)

    @cached_property
    def placement(self) -> tuple[str, ...]:
        """The site of each rank. Raises: PlacementError."""
        return place(self.profile, self.workers, self.network.table.place)

    @property
    def emulated_network(self) -> EmulatedNetwork:
        """The network between the workers, ready for an emulator."""
        return build(self.profile, self.placement, self.mtu)

    @property
    def law_gap(self) -> str | None:
        """Why the step-time law predicts no step time; None if it predicts one."""
        return "a program of your own"

    @property
    def predicted_step_time_s(self) -> float | None:
        """The step time by the step-time law; None where it does not hold (`law_gap`)."""
        return None

    @property
    def tcp(self) -> TcpTable:
        return self.network.table.tcp

    @property
    def mtu(self) -> int:
        return self.network.table.mtu

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that happen while workers train."""
        return tuple(map(Change.from_config, self.timeline))


@dataclass(frozen=True, kw_only=True)
class TrainingCell(Cell):
    """An algorithm, a workload and an optimizer.

    Attributes:
        task: the `[workload]` table; `step_time` is that of the slowest worker. step_times: by rank, if workers differ;
            else (). asked_window: run.window. asked_steps: train.until; 0 stops after the window.
        channels: channels of the collective, with `auto` resolved.
    """

    task: WorkloadTable
    step_times: tuple[Delay, ...] = ()
    train: TrainTable = field(default_factory=TrainTable)
    comm: CommTable = field(default_factory=CommTable)
    virtual: VirtualTable = field(default_factory=VirtualTable)
    failures: FailuresTable = field(default_factory=FailuresTable)
    channels: int = 1
    asked_window: int = _DEFAULT_WINDOW
    asked_steps: int = 0

    def _own_identity(self) -> Mapping[str, Any]:
        return {
            "params": dict(self.algorithm().changed),
            "workload": registry.workload_identity(self.task, self.train, self.step_times),
            "train": self.train.identity(),
            "comm": self.comm.identity(),
            "virtual": self.virtual.identity() if self.testbed == "virtual" else {},
            "failures": self.failures.identity(),
            "window": None if self.asked_window == _DEFAULT_WINDOW else self.asked_window,
        }

    @property
    def collective(self) -> Collective:
        """How an all-reduce travels."""
        name = self.comm.collective
        assert name != "auto", "resolved by the plan"
        return name

    @property
    def rate_scale(self) -> float:
        """The workload's payload scale."""
        scale = self.task.payload_scale
        assert scale != "auto", "resolved by the plan"
        return scale or 1.0

    def tables(self) -> Mapping[str, object]:
        own = {"workload": self.task, "train": self.train, "comm": self.comm, "virtual": self.virtual}
        return {**super().tables(), **own, "failures": self.failures}

    @cached_property
    def workload(self) -> WorkloadInfo:
        """The model and the compute time of the slowest worker."""
        return registry.workload_of(self.task, self.train)

    @property
    def each_step_time_s(self) -> tuple[float, ...]:
        """The mean time of a step of each worker, by rank; of real compute, 0."""
        return tuple(time.seconds for time in self.step_times) or (self.workload.step_time_s or 0.0,) * self.workers

    def algorithm(self) -> registry.AlgorithmInfo:
        return registry.algorithm(self.kind, self.params)

    @cached_property
    def messages_per_sync(self) -> int:
        """Number of all-reduces in one synchronisation."""
        return self.algorithm().tensors_per_message(self.train.momentum)

    @cached_property
    def message_bytes(self) -> int:
        """Bytes of one all-reduce."""
        return 0 if self.workers == 1 else self.algorithm().message_bytes(self.workload.numel, self.workload.shapes)

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """All ranks in the order in which they send to each other; that of ranks if the collective has no ring."""
        if self.collective != "ring" or self.comm.ring_order == "ranks":
            return tuple(range(self.workers))
        return ring_order(self.profile, self.placement, self.message_bytes, alone=not self.algorithm().delay_steps)

    @cached_property
    def law_inputs(self) -> PredictInputs:
        """The numbers that the step-time law reads. Raises: PredictError."""
        workload, algorithm = self.workload, self.algorithm()
        sites = [self.placement[rank] for rank in self.ring]
        rtt_s, rate = effective_conditions(self.profile, sites, self.collective)
        in_buckets = algorithm.buckets and self.workers > 1 and workload.step_time_s is not None
        inputs = PredictInputs(
            workers=self.workers,
            step_time_s=workload.step_time_s or 0.0,
            step_times_s=tuple(time.seconds for time in self.step_times),
            rtt_s=rtt_s,
            rate_bytes_per_s=None if rate is None else rate * payload_share(self.mtu),
            message_bytes=self.message_bytes,
            messages=self.messages_per_sync,
            delay=algorithm.delay_steps,
            period=algorithm.period_steps,
            collective=self.collective,
            channels=self.channels,
            buckets=tuple(workload.bucket_schedule(self.comm.buckets.bytes)) if in_buckets else None,
            step_cv=workload.step_cv,
            chunked=self.collective in ("direct", "hierarchical", "ring"),
        )
        window_bytes = self._window_bytes(inputs)
        whole = replace(inputs, one_shot_bytes=inputs.message_bytes)
        limited = replace(inputs, windows_bytes=windows_bytes(whole, self.profile, sites, window_bytes))
        inputs = replace(inputs, one_shot_bytes=one_shot_bytes(limited))
        return replace(inputs, windows_bytes=windows_bytes(inputs, self.profile, sites, window_bytes))

    def _window_bytes(self, inputs: PredictInputs) -> float:
        """What a connection has in flight at most."""
        rate = inputs.rate_bytes_per_s or 0.0
        host = host_tcp(self.tcp, buffer_that_holds(rate * inputs.rtt_s), self.rate_scale)
        rate_of_one = rate / max(1, connections_of(inputs, self.placement))
        full, unsent = rate_of_one * inputs.rtt_s, rate_of_one * UNSENT_S
        if inputs.collective != "gloo" and full and full + unsent > host.queue:  # gloo is not paced
            return min(host.in_flight, float(in_turns(full, host.queue, unsent)))
        return host.in_flight

    @cached_property
    def law_gap(self) -> str | None:
        if self.loses_workers:
            return "workers are lost"
        if self.changes:
            return "the network changes"
        if self.workload.step_time_s is None:
            return "compute is real"
        if self.workers == 1:
            return None
        if not self.algorithm().promises.follows_law:
            return "more than all-reduces"
        compressor = self.algorithm().compressor
        if compressor is not None and compressor.ns_per_byte:
            return "compression takes time"
        return why_unknown(
            self.law_inputs,
            self.profile,
            self.placement,
            self.mtu,
            window_bytes=self._window_bytes(self.law_inputs),
            congestion=self.tcp.congestion,
            slow_start_after_idle=self.tcp.slow_start_after_idle,
        )

    @property
    def predicted_step_time_s(self) -> float | None:
        return None if self.law_gap else predict(self.law_inputs).step_time_s

    @property
    def loses_workers(self) -> bool:
        """Whether workers are killed during training."""
        return self.failures.mtbf != "none" or any(change.kind == "kill" for change in self.changes)

    @cached_property
    def undisturbed_key(self) -> str | None:
        """Identity of the same cell without losses of workers; None if it has none."""
        if not self.loses_workers:
            return None
        timeline = tuple(entry for entry in self.timeline if "kill" not in entry)
        return replace(self, timeline=timeline, failures=FailuresTable()).key

    @cached_property
    def window_begin(self) -> int:
        """First measured step: where workers are killed, the first of all."""
        algorithm = self.algorithm()
        return 0 if self.loses_workers else fill_steps(algorithm.delay_steps, algorithm.period_steps)

    @cached_property
    def window(self) -> int:
        """Number of measured steps: where workers are killed, all."""
        algorithm = self.algorithm()
        window = window_steps(algorithm.delay_steps, algorithm.period_steps, self.asked_window)
        return max(window, self.asked_steps) if self.loses_workers else window

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return max(self.window_begin + self.window, self.asked_steps)

    @property
    def inputs(self) -> Inputs:
        mounted = () if self.task.data is None else (Path(self.task.data),)
        return Inputs(Path.cwd(), self.testbed, workload=self.task.plain(), mounted=mounted)

    trains: ClassVar[bool] = True

    @property
    def users_names(self) -> set[str]:
        return {name for name in (self.kind, self.task.model or "") if ":" in name}

    def forecast(self) -> dict[str, Any]:
        step_time_s = self.predicted_step_time_s
        return {
            "steps": self.steps,
            "window_steps": self.window,
            "collective": self.collective if self.workers > 1 else None,
            "channels": self.channels if self.workers > 1 else None,
            "predicted_step_time_s": step_time_s,
            "bound": predict(self.law_inputs).bound if step_time_s is not None else None,
        }

    def repetition(self, rep: int) -> TrainingRepetition:
        return repetition.training(self, rep)

    def columns(self, rep: int) -> dict[str, Any]:
        law, alone, failing = self.law_inputs, self.workers == 1, self.failures
        return {
            **super().columns(rep),
            "mtbf_s": failing.mtbf.seconds if failing.mtbf != "none" else None,
            "mttr_s": failing.mttr.seconds if failing.mtbf != "none" else None,
            "collective": None if alone else self.collective,
            "channels": None if alone else self.channels,
            "workload": self.workload.name,
            "payload_scale": self.workload.payload_scale,
            "predicted_step_time_s": self.predicted_step_time_s,
            "undisturbed_key": self.undisturbed_key,
            "law_inputs": law.to_json(),
            "message_bytes": law.message_bytes,
            "messages_per_sync": law.messages,
        }

    @cached_property
    def load(self) -> Load:
        """Estimate the load from the step-time law and the bytes that cross the emulator."""
        memory = self.memory_bytes
        if self.testbed == "virtual":
            seconds = _SIMULATED_S + self._simulated_step_s * self.workers * self.steps + self._simulated_hops_s
            return Load(seconds, 1.0, _SIMULATOR_BYTES + memory, simulated=True)
        seconds = self.expected_seconds
        if self.workload.step_time_s is None:
            return Load(seconds, math.inf, memory)
        if self.workers == 1:
            return Load(seconds, _CPU_SHARE_PER_WORKER, memory)
        inputs = self.law_inputs
        messages = [nbytes for nbytes, _ in inputs.buckets or ()] or [inputs.message_bytes] * inputs.messages
        sent = self.workers * sum(sent_bytes(inputs, nbytes) for nbytes in messages) / inputs.period  # bytes per step
        per_byte = self._cpu_s_per_byte()
        # From the messages of a step to the next; workers that differ may not wait for each other.
        alone = inputs.step_times_s and self.algorithm().promises.goes_on
        step_time_s = inputs.base_step_time_s if alone else predict(inputs).step_time_s
        of_worker = _CPU_SHARE_PER_WORKER + (0.5 if self.workload.learns else 0.0)
        computing = self.workers * of_worker + self.compressing_cpus
        return Load(
            seconds,
            cpus=computing + per_byte * sent / step_time_s,
            memory_bytes=memory,
            peak_cpus=computing + per_byte * self.workers * (inputs.rate_bytes_per_s or 0.0) / payload_share(self.mtu),
            emulated=True,
        )

    @property
    def compressing_cpus(self) -> float:
        if self.algorithm().compressor is None or self.workers == 1 or self.workload.step_time_s is None:
            return 0.0
        nbytes = self.workload.message_bytes / self.law_inputs.period
        return self.workers * _COMPRESSION_S_PER_BYTE * nbytes / predict(self.law_inputs).step_time_s

    def _cpu_s_per_byte(self) -> float:
        """Processor seconds per byte, in segments as long as the fastest path and the pace allow, or in packets."""
        if self.emulator != "relay":
            return _CPU_S_PER_PACKET / self.mtu
        network = self.emulated_network
        longest = max((network.longest_segment(*pair) for pair in network.links), default=network.segment_bytes)
        if self.comm.collective == "direct":
            pace = max((pace for pace, _ in paces(network, 0) if pace is not None), default=math.inf)
            longest = min(longest, max(pace * _TSO_S // self.mtu, _TSO_PACKETS) * self.mtu)
        return _CPU_S_PER_SEGMENT / max(longest, self.mtu) + _CPU_S_PER_BYTE

    @property
    def memory_bytes(self) -> float:
        """Vectors, two copies of each message in flight and of the next one, and packets on the way."""
        model = self.workload.message_bytes
        in_flight = self.algorithm().in_flight * self.messages_per_sync
        if self.testbed == "virtual":
            vectors = (_VECTORS + in_flight + self.messages_per_sync) * model if self.workload.learns else 0
            return self.workers * (_SIMULATED_BYTES + vectors)
        own = self.workers * (_WORKER_BYTES + self.worker_bytes)
        return own if self.workers == 1 else own + min(self.workers * in_flight * model, _room(self.emulated_network))

    @property
    def worker_bytes(self) -> float:
        """Bytes of one worker's vectors: parameters, gradients, two copies of each message in flight and the next."""
        started = (self.algorithm().in_flight + 1) * self.messages_per_sync
        return (_VECTORS + 2 * started) * self.workload.message_bytes

    @property
    def expected_seconds(self) -> float:
        """How long a repetition takes by the law, with its start and warm-up."""
        if self.workload.step_time_s is None:
            return GUESSED_STEP_S * self.steps
        inputs, after_fill = self.law_inputs, self.steps - self.window_begin
        return rep_duration_s(inputs, after_fill) + self._warm_s + planned_outage_s(self.changes) + 1.0

    @property
    def _warm_s(self) -> float:
        """Seconds of the rounds that open TCP's windows, and of one more that shows that they no longer grow."""
        if self.workers == 1 or self.algorithm().datagrams:
            return 0.0
        latency_s, wire_s = all_reduce_time(self.law_inputs, self.law_inputs.message_bytes)
        return (WARM_ROUNDS + 1) * (latency_s + self.warm_in_flight * wire_s)

    @property
    def warm_in_flight(self) -> int:
        """The number of messages at a time that open TCP's windows as far as training needs them: at most a pathful."""
        if self.comm.collective == "gloo":
            return 2 * self.channels  # gloo assigns operations to its channels in turn: two for each use all of them
        inputs, together = self.law_inputs, self.algorithm().in_flight * self.messages_per_sync
        if inputs.rate_bytes_per_s is not None and inputs.message_bytes:
            together = min(together, math.ceil(inputs.rate_bytes_per_s * inputs.rtt_s / inputs.message_bytes))
        return max(2 * self.messages_per_sync, together)

    @property
    def _simulated_step_s(self) -> float:
        """Processor seconds of one worker's step; gradients are computed only if the workload trains a model."""
        if not self.workload.learns:
            return _SIMULATED_S_PER_STEP
        multiply_adds = sum(tensor.backward_work for tensor in self.workload.parameters)
        return _LEARNING_S + 1.5 * 2 * multiply_adds * self.train.batch_size / _FLOPS

    @property
    def _simulated_hops_s(self) -> float:
        """Processor seconds for the hops of a ring and the rounds of gloo, which are simulated one after another."""
        if self.workers == 1 or self.collective not in ("ring", "gloo"):
            return 0.0
        operations = self.messages_per_sync * (WARM_ROUNDS + self.steps / self.algorithm().period_steps)
        hops = 2 * round_trips(self.collective, self.workers, self.message_bytes)
        return _SIMULATED_S_PER_HOP * hops * operations


def _room(network: EmulatedNetwork) -> float:
    """Bytes that fit into the paths and their buffers; infinite if a path has no rate."""
    rates = {pair: network.rate(*pair) for pair in network.links}
    flying = sum(math.inf if rate is None else rate * network.links[p].delay_ns / 1e9 for p, rate in rates.items())
    queues = (*network.up, *network.down, *(link.queue for link in network.links.values()))
    return flying + sum(queue.buffer_bytes for queue in queues if queue.rate_bytes_per_s is not None)


@dataclass(frozen=True, kw_only=True)
class CommandCell(Cell, Command):
    """A user's program.

    Attributes:
        collective: what carries the groups for which it asks gloo; None: gloo, and the spec does not say so.
        scaling: "strong" if all workers share the work that one does alone, else "weak".
        folder: the spec's folder, in which it runs. Neither this nor `timeout_s` is part of the identity.
    """

    collective: str | None = None
    scaling: str = "weak"
    folder: Path = Path()

    def _own_identity(self) -> Mapping[str, Any]:
        return {
            "command": list(self.command),
            "environment": dict(self.environment),
            "processes": None if self.processes == 1 else self.processes,
            "warmup": None if self.warmup == DEFAULT_WARMUP else self.warmup,
            "hook": self.hook or None,
            "collective": self.collective,
            "rendezvous": None if self.rendezvous == "network" else self.rendezvous,
            "scaling": None if self.scaling == "weak" else self.scaling,
        }

    @property
    def rate_scale(self) -> float:
        """1: wanbench cannot scale the messages of a program."""
        return 1.0

    def _further_axes(self) -> dict[str, Any]:
        """The label also shows the command's own axes."""
        further = super()._further_axes()
        return further if self.is_baseline else {key: v for key, v in further.items() if key not in self.params}

    @property
    def memory_bytes(self) -> float:
        """In addition to what the program itself allocates, which is unknown."""
        return self.workers * (_WORKER_BYTES + self.processes * _PROGRAM_BYTES)

    @property
    def load(self) -> Load:
        """A guess, which keeps the whole host for it."""
        return Load(_GUESSED_COMMAND_S, math.inf, self.memory_bytes)

    @property
    def inputs(self) -> Inputs:
        folder = self.folder.resolve()
        return Inputs(folder, self.testbed, command=self.command, mounted=(folder,))

    def repetition(self, rep: int) -> CommandRepetition:
        return repetition.command(self, rep)

    def columns(self, rep: int) -> dict[str, Any]:
        return {
            **super().columns(rep),
            "collective": self.collective,
            "workload": name_of(self.command),
            "payload_scale": self.rate_scale,
            "command": list(self.command),
            "scaling": self.scaling,
        }
