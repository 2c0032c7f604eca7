"""From a spec to the cells of its sweep; the same on every host but for what `auto` means there."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.auto import Host
from wanbench.harness.plan.cell import BASELINE, Cell, CommandCell, TrainingCell, workload_of
from wanbench.harness.plan.checks import check
from wanbench.harness.plan.law import GLOO_OPERATIONS_PER_CHANNEL
from wanbench.harness.plan.network import found
from wanbench.harness.spec import command
from wanbench.harness.spec.axes import excluded, is_commands_own, points
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.tables import CommTable, ContainersTable, VirtualTable, count
from wanbench.harness.timeline.changes import resolve as resolve_timeline
from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.workload_keys import kind_of

_Choice = tuple[str, dict[str, Any]]


def expand(spec: Spec, where: str, host: Host) -> list[Cell]:
    """All cells: the one-worker cells first, then the sweep in the order of its axes.

    Args:
        where: how errors name the spec; files that it names are looked for beside it. host: resolves `auto`.

    Raises:
        SpecError: an axis, algorithm, parameter, profile or combination is wrong; one line.
    """
    cells: dict[str, Cell] = {}
    baselines: dict[str, Cell] = {}
    contained = False
    for axes, point in points(spec, where):
        contained = contained or bool(point.containers.model_fields_set)
        for cell, base in _Point(point, axes, where, host).cells():
            if excluded(spec, cell.axes):
                continue
            check(cell, point, where)
            check(base, point, where)
            cells.setdefault(cell.key, cell)
            baselines.setdefault(base.key, base)
    if not cells:
        raise SpecError(f"{where}: sweep: nothing is left to run; loosen sweep.exclude")
    if contained and not any(cell.testbed == "docker" for cell in cells.values()):
        raise SpecError(f"{where}: containers: goes with the testbed docker; set run.testbed, or leave it out")
    return [*baselines.values(), *cells.values()]


@dataclass(frozen=True)
class _Point:
    """One combination of the axes: the spec with their values filled in."""

    spec: Spec
    axes: Mapping[str, Any]
    where: str
    host: Host

    def cells(self) -> Iterator[tuple[Cell, Cell]]:
        """Each cell with the one-worker cell that it is compared with, whose key both carry."""
        pairs = self._trainings() if self.spec.workload.command is None else self._commands()
        for cell, base in pairs:
            yield replace(cell, base_key=base.key), replace(base, base_key=base.key)

    def _trainings(self) -> Iterator[tuple[Cell, Cell]]:
        for label, (kind, params) in self._selected(_algorithms(self.spec, self.where)):
            yield self._training(label, kind, params), self._training_alone()

    def _commands(self) -> Iterator[tuple[Cell, Cell]]:
        command.check(self.spec, self.axes, self.where)
        command.check_used(self.spec, self.axes, Path(self.where).parent, self.where)
        for _, (name, params) in self._selected(command.algorithms(self.spec, self.where)):
            yield self._command(name, params), self._command_alone(name, params)

    def _selected(self, known: Mapping[str, _Choice]) -> Iterator[tuple[str, _Choice]]:
        """The algorithms of this point: all, or the one that its `algorithm` axis names."""
        wanted = self.axes.get("algorithm")
        if wanted is not None and wanted not in known:
            close = difflib.get_close_matches(str(wanted), known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"labels: {', '.join(known)}"
            raise SpecError(f"{self.where}: sweep.algorithm: no algorithm {wanted!r}; {hint}")
        return ((label, choice) for label, choice in known.items() if wanted in {None, label})

    def _training(self, label: str, kind: str, params: dict[str, Any]) -> TrainingCell:
        """A cell on this point's network."""
        cell = replace(
            self._training_alone(),
            label=label,
            kind=kind,
            params=params,
            workers=self.axes["workers"],
            network=found(self.spec.network, self.where),
            comm=self.spec.comm,
            virtual=self.spec.virtual,
            asked_steps=count(self.spec.train.until or "0 steps"),
            timeline=self._timeline(),
            axes={"algorithm": label, **self.axes},
        )
        return replace(cell, channels=_channels(cell, self.where))

    def _training_alone(self) -> TrainingCell:
        """One worker without a network: it serves all networks."""
        task = self.spec.workload
        if task.data is not None:
            task = task.model_copy(update={"data": _data_folder(task.data, self.where)})
        return TrainingCell(
            label=BASELINE,
            kind="local",
            params={},
            workers=1,
            seed=self.spec.run.seed,
            axes={"algorithm": BASELINE, "workers": 1},
            task=task,
            train=self.spec.train,
            comm=CommTable(),
            virtual=VirtualTable(),
            asked_window=count(self.spec.run.window),
            **self._place(),
        )

    def _command(self, name: str, params: dict[str, Any]) -> CommandCell:
        own = self._own_axes()
        label = name + command.suffix({**params, **own})
        cell = self._filled(name, params, {"algorithm": label, **self.axes}, axes_of_program=own)
        return replace(
            cell,
            label=label,
            workers=self.axes["workers"],
            network=found(self.spec.network, self.where),
            timeline=self._timeline(),
        )

    def _command_alone(self, name: str, params: dict[str, Any]) -> CommandCell:
        """On one worker: of the axes only those count that the program reads."""
        assert self.spec.workload.command is not None
        read = {*self._own_axes(), *command.placeholders(self.spec.workload.command, self.where)}
        axes = {key: value for key, value in self.axes.items() if key in read} | {"workers": 1}
        return self._filled(name, params, {"algorithm": BASELINE, **axes}, axes_of_program=axes)

    def _filled(
        self, name: str, params: dict[str, Any], axes: Mapping[str, Any], *, axes_of_program: Mapping[str, Any]
    ) -> CommandCell:
        """The command with its axes filled in, for one worker. `axes_of_program`: those that its environment names."""
        table = self.spec.workload
        assert table.command is not None
        try:
            kind_of(table.plain(), {})
        except ValueError as error:
            raise SpecError(f"{self.where}: {error}") from None
        return CommandCell(
            label=BASELINE,
            kind=f"command:{name}",
            params={**params, **self._own_axes()},
            workers=1,
            seed=self.spec.run.seed,
            axes=axes,
            command=tuple(command.filled(table.command, {**axes, **params, "algorithm": name}, self.where)),
            environment=command.environment(name, params, axes_of_program),
            processes=table.nproc_per_worker or 1,
            warmup=count(table.warmup or command.DEFAULT_WARMUP),
            hook=table.step_times == "hook",
            folder=Path(self.where).parent,
            timeout_s=(table.timeout or command.DEFAULT_TIMEOUT).seconds,
            **self._place(),
        )

    def _own_axes(self) -> dict[str, Any]:
        return {key: value for key, value in self.axes.items() if is_commands_own(key)}

    def _timeline(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(resolve_timeline(self.spec.timeline, self.where))

    def _place(self) -> dict[str, Any]:
        """Testbed and emulator, and what surrounds workers there."""
        run = self.spec.run
        if run.testbed == "virtual":
            return {"testbed": "virtual", "emulator": None}
        testbed = self.host.testbed() if run.testbed == "auto" else run.testbed
        emulator = self.host.emulator(testbed) if run.emulator == "auto" else run.emulator
        containers = self.spec.containers if testbed == "docker" else ContainersTable()
        return {"testbed": testbed, "emulator": emulator, "containers": containers}


def _data_folder(text: str, where: str) -> str:
    """A data set is looked for beside the spec first, then in the working folder, as profile files are."""
    folder = Path(text).expanduser()
    beside = Path(where).parent / folder
    return os.path.abspath(beside if beside.exists() else folder)


def _algorithms(spec: Spec, where: str) -> dict[str, _Choice]:
    """(kind, params) of every algorithm by its label, lists expanded."""
    found: dict[str, _Choice] = {}
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


def _channels(cell: TrainingCell, where: str) -> int:
    """As many as what the algorithm keeps in flight needs: gloo runs two operations on each, direct any number."""
    if cell.comm.channels != "auto":
        return cell.comm.channels
    if cell.comm.collective != "gloo":
        return 1
    algorithm = cell.algorithm()
    in_flight = algorithm.in_flight * cell.messages_per_sync
    if algorithm.buckets:
        try:
            in_flight = len(workload_of(cell.task, cell.train).buckets(cell.comm.buckets.bytes))
        except ValueError as error:
            raise SpecError(f"{where}: {error}") from None
    return math.ceil(in_flight / GLOO_OPERATIONS_PER_CHANNEL)
