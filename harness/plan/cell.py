"""From a spec to the cells of its sweep: pure, and the same on every machine."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.errors import SpecError
from wanbench.harness.plan.checks import check
from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import GLOO_OPERATIONS_PER_CHANNEL, PredictInputs, fill_steps, predict, window_steps
from wanbench.harness.spec import command
from wanbench.harness.spec.axes import excluded, is_commands_own, points
from wanbench.harness.spec.experiment import CommTable, Spec, VirtualTable
from wanbench.harness.spec.networks import of_one_worker, resolve, resolve_profile
from wanbench.harness.timeline.changes import Change, changes_of
from wanbench.harness.timeline.changes import resolve as resolve_timeline
from wanbench.netprofiles import Delay, Profile, Size, place
from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.algorithms.base import Algorithm
from wanbench.workloads.registry import WorkloadInfo, info
from wanbench.workloads.workload_keys import kind_of

BASELINE = "one-worker"


@dataclass(frozen=True)
class Cell:
    """One point of a sweep, resolved: what it says decides its identity, where it is stored does not.

    Attributes:
        config: plain data, everything that influences the measurement. Hashed.
        axes: the swept values of this cell, for people: {"algorithm": "ssgd", "workers": 4, "rtt": "100ms"}.
        profile_source: catalog name or file of the profile; its content is part of the identity, its place
            is not.
        folder: where a command runs: that of the spec. timeout_s: after which it is killed.
        base_key: of a command's cell, the identity of the one-worker cell that it is compared with.
    """

    config: Mapping[str, Any]
    axes: Mapping[str, Any] = field(default_factory=dict)
    profile_source: str = "uniform"
    folder: Path = Path()
    timeout_s: float | None = None
    base_key: str | None = None

    @property
    def key(self) -> str:
        """Identity: hash of the canonical configuration."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def slug(self) -> str:
        """Folder name: readable, unique through the hash, and the same whatever the order of the axes."""
        parts = [self.label, f"w{self.workers}"]
        parts += [f"{k}{v}" for k, v in sorted(self._further_axes().items())]
        text = "-".join(parts).replace("/", "_").replace(" ", "")
        return f"{text[:80]}-{self.key[:6]}"

    @property
    def label(self) -> str:
        """The algorithm's label, e.g. "dts-d20-p4"."""
        return str(self.config["algorithm"]["label"])

    @property
    def workers(self) -> int:
        """N."""
        return int(self.config["workers"])

    @property
    def is_baseline(self) -> bool:
        """True for the one-worker cell that scalability divides by."""
        return self.label == BASELINE

    @property
    def is_command(self) -> bool:
        """True if it runs a program of the user's, of which no more is known than how it is called."""
        return "command" in self.config["workload"]

    @property
    def title(self) -> str:
        """One line for people."""
        axes = [f"{v}" if k == "rtt" else f"{k}={v}" for k, v in self._further_axes().items()]
        return " ".join([f"{self.label:14}", f"w{self.workers}", *axes])

    def _further_axes(self) -> dict[str, Any]:
        """Axes that the label and the number of workers do not tell."""
        told = {"algorithm", "workers"}
        if self.is_command and not self.is_baseline:
            told |= set(self.config["algorithm"]["params"])
        return {key: value for key, value in self.axes.items() if key not in told}

    def workload(self) -> WorkloadInfo:
        """What a worker computes."""
        return _workload(json.dumps([self.config["workload"], self.config["train"]], sort_keys=True))

    def algorithm(self) -> Algorithm:
        """A fresh instance."""
        return algorithms.create(self.config["algorithm"]["kind"], self.config["algorithm"]["params"])

    def profile(self) -> Profile:
        """The network, payload scale applied."""
        return resolve_profile(
            json.dumps(self.config["network"], sort_keys=True),
            self.workers,
            self.rate_scale,
            self.profile_source,
        )

    def placement(self) -> tuple[str, ...]:
        """The site of each rank."""
        return place(self.profile(), self.workers, self.config["network"]["place"])

    @property
    def changes(self) -> tuple[Change, ...]:
        """What changes while workers train."""
        return changes_of(self.config)

    @property
    def rate_scale(self) -> float:
        """What rates are multiplied by."""
        return float(self.config["workload"].get("payload_scale", 1.0))

    def law_inputs(self) -> PredictInputs:
        """The numbers that the step-time law reads."""
        workload, algorithm, comm = self.workload(), self.algorithm(), self.config["comm"]
        rtt_s, rate = effective_conditions(self.profile(), self.placement(), self.workers, comm["collective"])
        buckets = None
        if algorithm.buckets and self.workers > 1 and workload.step_time_s is not None:
            buckets = tuple(workload.bucket_schedule(Size.parse(comm["buckets"]).bytes))
        momentum = float(self.config["train"].get("momentum", 0.0))
        tensors = algorithm.tensors_per_message(momentum)
        return PredictInputs(
            workers=self.workers,
            step_time_s=workload.step_time_s or 0.0,
            rtt_s=rtt_s,
            rate_bytes_per_s=rate,
            message_bytes=0 if self.workers == 1 else algorithm.message_bytes(workload.numel, workload.shapes),
            messages=tensors,
            delay=algorithm.delay_steps,
            period=algorithm.period_steps,
            collective=comm["collective"],
            channels=comm["channels"],
            buckets=buckets,
            step_cv=workload.step_cv,
        )

    def predicted_step_time_s(self) -> float | None:
        """By the law; None where it does not speak of the algorithm, compute is real, or the network changes."""
        if self.changes or self.is_command or self.workload().step_time_s is None:
            return None
        return predict(self.law_inputs()).step_time_s if self.workers == 1 or self.algorithm().promises.lawful else None

    @property
    def window_begin(self) -> int:
        """First measured step."""
        algorithm = self.algorithm()
        return fill_steps(algorithm.delay_steps, algorithm.period_steps)

    @property
    def window(self) -> int:
        """Number of measured steps."""
        algorithm = self.algorithm()
        return window_steps(algorithm.delay_steps, algorithm.period_steps, int(self.config["window"]))

    @property
    def steps(self) -> int:
        """Steps to run in all."""
        return max(self.window_begin + self.window, int(self.config["steps"]))


@lru_cache(maxsize=256)
def _workload(tables_json: str) -> WorkloadInfo:
    """Cached, because a model has to be made to be measured."""
    workload, train = json.loads(tables_json)
    return info(workload, train)


def expand(spec: Spec, where: str) -> list[Cell]:
    """All cells: the one-worker cells first, then the sweep in the order of its axes.

    Raises:
        SpecError: an axis, algorithm, parameter, profile or combination is wrong; one line.
    """
    cells: dict[str, Cell] = {}
    baselines: dict[str, Cell] = {}
    contained = False
    for axes, point in points(spec, where):
        contained = contained or bool(point.containers.model_fields_set)
        for cell, base in _cells_of(point, axes, where):
            if excluded(spec, cell.axes):
                continue
            check(cell, point, where)
            check(base, point, where)
            cells.setdefault(cell.key, cell)
            baselines.setdefault(base.key, base)
    if not cells:
        raise SpecError(f"{where}: sweep: nothing is left to run; loosen sweep.exclude")
    if contained and not any(cell.config["testbed"] == "docker" for cell in cells.values()):
        raise SpecError(f"{where}: containers: goes with the testbed docker; set run.testbed, or leave it out")
    return [*baselines.values(), *cells.values()]


def _cells_of(spec: Spec, axes: Mapping[str, Any], where: str) -> Iterator[tuple[Cell, Cell]]:
    """The cells of a point, each with the one-worker cell that it is compared with."""
    if spec.workload.command is not None:
        command.check(spec, axes, where)
        command.check_used(spec, axes, Path(where).parent, where)
        for _, name, params in _selected(axes, command.algorithms(spec, where), where):
            cell = _command_cell(spec, axes, name, params, where)
            base = _command_cell(spec, axes, name, params, where, alone=True)
            yield replace(cell, base_key=base.key), replace(base, base_key=base.key)
        return
    for label, kind, params in _selected(axes, _algorithms(spec, where), where):
        cell = _cell(spec, {"algorithm": label, **axes}, label, kind, params, where)
        yield cell, _cell(spec, {"algorithm": BASELINE, "workers": 1}, BASELINE, "local", {}, where, workers=1)


def _command_cell(
    spec: Spec, axes: Mapping[str, Any], name: str, params: Mapping[str, Any], where: str, *, alone: bool = False
) -> Cell:
    """A cell that runs a program, on one worker if `alone`: then of the axes only those count that the program reads.

    The command is stored as it is filled in, and how long it may take is not part of the identity.
    """
    table = spec.workload
    assert table.command is not None
    own = {key: value for key, value in axes.items() if is_commands_own(key)}
    label = BASELINE if alone else name + command.suffix({**params, **own})
    if alone:
        asked = command.placeholders(table.command, where)
        axes = {key: value for key, value in axes.items() if key in own or key in asked} | {"workers": 1}
    workload = table.model_dump(exclude_none=True)
    timeout = Delay.parse(workload.pop("timeout", command.DEFAULT_TIMEOUT))
    workload["command"] = command.filled(table.command, {**axes, **params, "algorithm": name}, where)
    network, source = resolve(spec.network, spec.to_dict().get("network", {}), where)
    if alone:
        network, source = of_one_worker()
    config = {
        "workload": {"warmup": command.DEFAULT_WARMUP, "nproc_per_worker": 1, **workload},
        "network": network,
        "algorithm": {"label": label, "kind": f"command:{name}", "params": {**params, **own}},
        "environment": command.environment(name, params, axes if alone else own),
        "workers": axes["workers"],
        "seed": spec.run.seed,
        **_place_to_run(spec, label),
        **_timeline(spec, label, where),
    }
    cell = Cell(config, {"algorithm": label, **axes}, source, Path(where).parent, timeout.seconds)
    try:
        kind_of(workload, {})
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from None
    return cell


def _algorithms(spec: Spec, where: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """(kind, params) of every algorithm by its label, lists expanded."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for key, table in spec.algorithms.items():
        params = dict(table)
        kind = str(params.pop("kind", key))
        try:
            for one in algorithms.expand(kind, params):
                algorithm = algorithms.create(kind, one)
                label = algorithm.label
                if key != kind:
                    label = f"{key}{label.removeprefix(algorithm.kind)}"
                if label == BASELINE:
                    raise ValueError(f"{BASELINE!r} is what T(1) is measured with; choose another name")
                if label in found:
                    raise ValueError(f"there are two {label!r}; rename or drop one")
                found[label] = kind, one
        except ValueError as error:
            raise SpecError(f"{where}: algorithms.{key}: {error}") from None
    return found


def _selected(
    axes: Mapping[str, Any], found: Mapping[str, tuple[str, dict[str, Any]]], where: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(label, kind, params) of the algorithms of a point: all, or the one that its `algorithm` axis names."""
    wanted = axes.get("algorithm")
    if wanted is not None and wanted not in found:
        close = difflib.get_close_matches(str(wanted), found, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"labels: {', '.join(found)}"
        raise SpecError(f"{where}: sweep.algorithm: no algorithm {wanted!r}; {hint}")
    for label, (kind, params) in found.items():
        if wanted in {None, label}:
            yield label, kind, params


def _cell(
    spec: Spec,
    axes: dict[str, Any],
    label: str,
    kind: str,
    params: dict[str, Any],
    where: str,
    workers: int | None = None,
) -> Cell:
    workers = workers if workers is not None else axes["workers"]
    data = spec.to_dict()
    comm = spec.comm.model_dump()
    workload = dict(data["workload"])
    if "data" in workload:
        workload["data"] = _data_folder(workload["data"], where)
    network, source = resolve(spec.network, data.get("network", {}), where)
    if label == BASELINE:
        network, source = of_one_worker()
        comm = CommTable().model_dump()
    algorithm = algorithms.create(kind, params)
    train = data.get("train", {})
    if comm["channels"] == "auto":
        try:
            comm["channels"] = _channels(comm, algorithm, workload, train)
        except ValueError as error:
            raise SpecError(f"{where}: {error}") from None
    config = {
        "workload": workload,
        "train": train,
        "network": network,
        "comm": comm,
        "algorithm": {"label": label, "kind": kind, "params": params},
        "workers": workers,
        "window": int(spec.run.window.split()[0]),
        "steps": int((spec.train.until or "0 steps").split()[0]) if label != BASELINE else 0,
        "seed": spec.run.seed,
        **_place_to_run(spec, label),
        **_timeline(spec, label, where),
    }
    return Cell(config, axes, source)


def _data_folder(text: str, where: str) -> str:
    """A data set is looked for beside the spec first, then in the working folder, as profile files are."""
    folder = Path(text).expanduser()
    beside = Path(where).parent / folder
    return os.path.abspath(beside if beside.exists() else folder)


def _place_to_run(spec: Spec, label: str) -> dict[str, Any]:
    """Testbed and emulator; what is modelled is part of simulated cells only, of those with a network."""
    if spec.run.testbed == "virtual":
        model = VirtualTable() if label == BASELINE else spec.virtual
        return {"testbed": "virtual", "emulator": None, "virtual": model.model_dump()}
    testbed = testbeds.chosen() if spec.run.testbed == "auto" else spec.run.testbed
    emulator = choice.chosen(testbed)[0] if spec.run.emulator == "auto" else spec.run.emulator
    containers = spec.containers.model_dump(exclude_none=True) if testbed == "docker" else {}
    return {"testbed": testbed, "emulator": emulator} | ({"containers": containers} if containers else {})


def _timeline(spec: Spec, label: str, where: str) -> dict[str, Any]:
    """What changes; nothing where nothing does, so that such cells keep their identity, nor for a lone worker."""
    return {"timeline": resolve_timeline(spec.timeline, where)} if spec.timeline and label != BASELINE else {}


def _channels(
    comm: Mapping[str, Any], algorithm: Algorithm, workload: Mapping[str, Any], train: Mapping[str, Any]
) -> int:
    """As many as what the algorithm keeps in flight needs: gloo runs two operations on each, direct any number."""
    if comm["collective"] != "gloo":
        return 1
    in_flight = algorithm.in_flight * algorithm.tensors_per_message(float(train.get("momentum", 0.0)))
    if algorithm.buckets:
        tables = json.dumps([workload, train], sort_keys=True)
        in_flight = len(_workload(tables).buckets(Size.parse(comm["buckets"]).bytes))
    return math.ceil(in_flight / GLOO_OPERATIONS_PER_CHANNEL)
