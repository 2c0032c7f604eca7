"""One point of a sweep, resolved. Its content decides its identity; the place where it is stored does not.

A training cell runs an algorithm in wanbench's own loop. A command cell runs a user's program, and knows only how to
call it.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.plan import PAYLOAD_SHARE
from wanbench.harness.plan import known
from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import Collective, PredictInputs, fill_steps, one_shot_bytes, predict, window_steps
from wanbench.harness.plan.limits import why_unknown
from wanbench.harness.plan.network import CellNetwork
from wanbench.harness.plan.ring_order import ring_order
from wanbench.harness.plan.workload import workload_identity, workload_of
from wanbench.harness.spec.tables import (
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
from wanbench.harness.timeline.changes import Change
from wanbench.netprofiles import Delay, Profile
from wanbench.workloads.registry import WorkloadInfo

BASELINE = "one-worker"
_LONGEST = 200  # bytes of the readable part of a folder; file systems take 255
_DEFAULT_SEED, _DEFAULT_WINDOW, _DEFAULT_WARMUP = RunTable().seed, count(RunTable().window), 3


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
        """The fields that this type of cell adds to the identity."""

    def _changed_params(self) -> dict[str, Any]:
        """The parameters that differ from their default."""
        return dict(self.params)

    def identity(self) -> dict[str, Any]:
        """Plain data: everything that influences the measurement, except empty fields and defaults."""
        fields = {
            "label": self.label,
            "kind": self.kind,
            "params": self._changed_params(),
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
        return self.network.placement(self.profile, self.workers)

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
        """The TCP settings of the workers."""
        return self.network.table.tcp

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
            "workload": workload_identity(self.task, self.train, self.step_times),
            "train": self.train.identity(),
            "comm": self.comm.identity(),
            "virtual": self.virtual.identity() if self.testbed == "virtual" else {},
            "failures": self.failures.identity(),
            "window": None if self.asked_window == _DEFAULT_WINDOW else self.asked_window,
        }

    def _changed_params(self) -> dict[str, Any]:
        return dict(self.algorithm().changed)

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
        """See `Cell.tables`."""
        own = {"workload": self.task, "train": self.train, "comm": self.comm, "virtual": self.virtual}
        return {**super().tables(), **own, "failures": self.failures}

    @cached_property
    def workload(self) -> WorkloadInfo:
        """The model and the compute time of the slowest worker."""
        return workload_of(self.task, self.train)

    @property
    def each_step_time_s(self) -> tuple[float, ...]:
        """The mean time of a step of each worker, by rank; of real compute, 0."""
        same_s = self.workload.step_time_s or 0.0
        return tuple(time.seconds for time in self.step_times) or (same_s,) * self.workers

    def algorithm(self) -> known.KnownAlgorithm:
        """Describe the algorithm."""
        return known.algorithm(self.kind, self.params)

    @cached_property
    def messages_per_sync(self) -> int:
        """Number of all-reduces in one synchronisation."""
        return self.algorithm().tensors_per_message(self.train.momentum)

    @cached_property
    def message_bytes(self) -> int:
        """Bytes of one all-reduce."""
        workload = self.workload
        return 0 if self.workers == 1 else self.algorithm().message_bytes(workload.numel, workload.shapes)

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """All ranks in the order in which they send to each other; that of ranks if the collective has no ring."""
        if self.collective != "ring" or self.comm.ring_order == "ranks":
            return tuple(range(self.workers))
        alone = not self.algorithm().delay_steps
        return ring_order(self.profile, self.placement, self.message_bytes, alone=alone)

    @cached_property
    def law_inputs(self) -> PredictInputs:
        """The numbers that the step-time law reads. Raises: PredictError."""
        workload, algorithm = self.workload, self.algorithm()
        sites = [self.placement[rank] for rank in self.ring]
        rtt_s, rate = effective_conditions(self.profile, sites, self.workers, self.collective)
        payload_rate = None if rate is None else rate * PAYLOAD_SHARE
        buckets = None
        if algorithm.buckets and self.workers > 1 and workload.step_time_s is not None:
            buckets = tuple(workload.bucket_schedule(self.comm.buckets.bytes))
        inputs = PredictInputs(
            workers=self.workers,
            step_time_s=workload.step_time_s or 0.0,
            step_times_s=tuple(time.seconds for time in self.step_times),
            rtt_s=rtt_s,
            rate_bytes_per_s=payload_rate,
            message_bytes=self.message_bytes,
            messages=self.messages_per_sync,
            delay=algorithm.delay_steps,
            period=algorithm.period_steps,
            collective=self.collective,
            channels=self.channels,
            buckets=buckets,
            step_cv=workload.step_cv,
            chunked=self.collective in ("direct", "hierarchical", "ring"),
        )
        return replace(inputs, one_shot_bytes=one_shot_bytes(inputs))

    @cached_property
    def law_gap(self) -> str | None:
        """See `Cell.law_gap`."""
        if self.loses_workers:
            return "workers are lost"
        if self.changes:
            return "the network changes"
        if self.workload.step_time_s is None:
            return "compute is real"
        if self.workers == 1:
            return None
        if not self.algorithm().promises.lawful:
            return "more than all-reduces"
        compressor = self.algorithm().compressor
        if compressor is not None and compressor.ns_per_byte:
            return "compression takes time"
        idle = self.tcp.slow_start_after_idle
        return why_unknown(self.law_inputs, self.profile, self.placement[: self.workers], slow_start_after_idle=idle)

    @property
    def predicted_step_time_s(self) -> float | None:
        """See `Cell.predicted_step_time_s`."""
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
        others = tuple(entry for entry in self.timeline if "kill" not in entry)
        return replace(self, timeline=others, failures=FailuresTable()).key

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


@dataclass(frozen=True, kw_only=True)
class CommandCell(Cell):
    """A user's program.

    Attributes:
        command: the arguments, with placeholders filled in. environment: variables that describe algorithm and axes.
        processes: processes per worker. warmup: first steps, not counted. hook: torch's optimizers report its steps.
        collective: what carries the groups for which it asks gloo; None: gloo, and the spec does not say so.
        rendezvous: "network" if it crosses the emulated network, else "local".
        scaling: "strong" if all workers share the work that one does alone, else "weak".
        folder: the spec's folder, in which it runs. timeout_s: it is killed after this time. Neither is part of the
            identity.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    warmup: int = _DEFAULT_WARMUP
    hook: bool = False
    collective: str | None = None
    rendezvous: str = "network"
    scaling: str = "weak"
    folder: Path = Path()
    timeout_s: float | None = None

    def _own_identity(self) -> Mapping[str, Any]:
        return {
            "command": list(self.command),
            "environment": dict(self.environment),
            "processes": None if self.processes == 1 else self.processes,
            "warmup": None if self.warmup == _DEFAULT_WARMUP else self.warmup,
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
        """See `Cell`. The label also shows the command's own axes."""
        further = super()._further_axes()
        return further if self.is_baseline else {key: v for key, v in further.items() if key not in self.params}
