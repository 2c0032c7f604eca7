"""From a spec to the cells of its sweep. Only the values of `auto` depend on the host."""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.plan import registry
from wanbench.harness.plan.auto import Host
from wanbench.harness.plan.cell import BASELINE, Cell, CommandCell, TrainingCell
from wanbench.harness.plan.checks import check, check_network
from wanbench.harness.plan.collective import with_collective
from wanbench.harness.plan.network import with_profile
from wanbench.harness.process.apart import OwnCodeError
from wanbench.harness.spec import command
from wanbench.harness.spec.axes import excluded, is_commands_own, points
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.tables import CommTable, ContainersTable, VirtualTable, count
from wanbench.harness.timeline.changes import resolve as resolve_timeline
from wanbench.netprofiles import Delay, Profile, ProfileError, did_you_mean
from wanbench.workloads.algorithms.registry import alternatives
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.registry import data_folder
from wanbench.workloads.workload_keys import duration, kind_of

_Choice = tuple[str, dict[str, Any]]


def expand(spec: Spec, where: str, host: Host, chosen: dict[str, Any] | None = None) -> list[Cell]:
    """Return all cells: the one-worker cells first, then the sweep in the order of its axes.

    Args:
        where: the spec's name in errors; its folder is searched for the files that the spec names.
        host: resolves `auto`. chosen: gets the testbed and, by testbed, the emulator that it chose.

    Raises:
        SpecError: an axis, algorithm, parameter, profile or combination is wrong; one line.
    """
    chosen = {} if chosen is None else chosen
    cells: dict[str, Cell] = {}
    baselines: dict[str, Cell] = {}
    sets_containers = False
    with as_spec_error(where, OwnCodeError):
        for axes, point in points(spec, where):
            sets_containers |= bool(point.containers.model_fields_set)
            for cell, base in _Point(point, axes, where, host, chosen).cells():
                if not excluded(spec, cell.axes):
                    check(cell, point, where)
                    check(base, point, where)
                    cells.setdefault(cell.key, cell)
                    baselines.setdefault(base.key, base)
    if not cells:
        raise SpecError(f"{where}: sweep: sweep.exclude removes every cell; expected at least one left; exclude less")
    if sets_containers and not any(cell.testbed == "docker" for cell in cells.values()):
        raise SpecError(f'{where}: containers: only testbed docker uses it; set run.testbed = "docker", or remove it')
    return [*baselines.values(), *cells.values()]


@dataclass(frozen=True)
class _Point:
    """One combination of the axes: the spec with their values filled in."""

    spec: Spec
    axes: Mapping[str, Any]
    where: str
    host: Host
    chosen: dict[str, Any]

    def cells(self) -> Iterator[tuple[Cell, Cell]]:
        """Yield each cell with its one-worker cell; both carry the key of the latter."""
        for cell, base in self._training_cells() if self.spec.workload.command is None else self._command_cells():
            yield replace(cell, base_key=base.key), replace(base, base_key=base.key)

    def _training_cells(self) -> Iterator[tuple[Cell, Cell]]:
        alone = self._one_worker_training()
        for label, (kind, params) in self._selected(_algorithms(self.spec, self.where)):
            cell = replace(
                alone,
                label=label,
                kind=kind,
                params=params,
                workers=self.axes["workers"],
                network=with_profile(self.spec.network, self.where),
                comm=self.spec.comm,
                virtual=self.spec.virtual,
                failures=self.spec.failures,
                asked_steps=count(self.spec.train.until or "0 steps"),
                timeline=self._timeline(),
                axes={"algorithm": label, **self.axes},
            )
            check_network(cell, self.spec, self.where)
            cell = with_collective(with_step_times(cell, self.where), self.where)
            yield cell, with_base_time(alone, cell)

    def _command_cells(self) -> Iterator[tuple[Cell, Cell]]:
        command.check(self.spec, self.axes, self.where)
        command.check_used(self.spec, self.axes, Path(self.where).parent, self.where)
        for _, (name, params) in self._selected(command.algorithms(self.spec, self.where)):
            yield self._command_cell(name, params), self._one_worker_command(name, params)

    def _selected(self, choices: Mapping[str, _Choice]) -> Iterator[tuple[str, _Choice]]:
        """The algorithms of this point: all, or only the value of the `algorithm` axis."""
        selected = self.axes.get("algorithm")
        if selected is not None and selected not in choices:
            near = did_you_mean(str(selected), choices, f"labels: {', '.join(choices)}")
            raise SpecError(f"{self.where}: sweep.algorithm: no algorithm {selected!r}{near}")
        return ((label, choice) for label, choice in choices.items() if selected in {None, label})

    def _one_worker_training(self) -> TrainingCell:
        """One worker without a network; cells on all networks share it, unless machines differ."""
        task = self.spec.workload
        folder = data_folder(task.plain())
        if folder is not None:  # beside the spec first, then in the working folder, as for profile files
            beside = Path(self.where).parent / folder
            task = task.model_copy(update={"data": os.path.abspath(beside if beside.exists() else folder)})
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
            **self._testbed_fields(),
        )

    def _command_cell(self, name: str, params: dict[str, Any]) -> CommandCell:
        own = self._own_axes()
        label = name + command.suffix({**params, **own})
        return replace(
            self._one_worker_cell(name, params, {"algorithm": label, **self.axes}, program_axes=own),
            label=label,
            workers=self.axes["workers"],
            network=with_profile(self.spec.network, self.where),
            collective=command.chosen_collective(self.spec),
            timeline=self._timeline(),
        )

    def _one_worker_command(self, name: str, params: dict[str, Any]) -> CommandCell:
        """The command on one worker, with only the axes that the program reads."""
        read = {*self._own_axes(), *command.placeholders(self.spec.workload.command or [], self.where)}
        axes = {key: value for key, value in self.axes.items() if key in read} | {"workers": 1}
        return self._one_worker_cell(name, params, {"algorithm": BASELINE, **axes}, program_axes=axes)

    def _one_worker_cell(
        self, name: str, params: dict[str, Any], axes: Mapping[str, Any], *, program_axes: Mapping[str, Any]
    ) -> CommandCell:
        """The command with `axes` filled in, for one worker. `program_axes` are passed in its environment."""
        table = self.spec.workload
        with as_spec_error(self.where, ValueError):
            kind_of(table.plain(), {})
        return CommandCell(
            label=BASELINE,
            kind=f"command:{name}",
            params={**params, **self._own_axes()},
            workers=1,
            seed=self.spec.run.seed,
            axes=axes,
            command=tuple(command.filled(table.command or [], {**axes, **params, "algorithm": name}, self.where)),
            environment=command.environment(name, params, program_axes),
            processes=table.nproc_per_worker or 1,
            warmup=count(table.warmup or command.DEFAULT_WARMUP),
            hook=table.step_times == "hook",
            rendezvous=table.rendezvous or "network",
            scaling=table.scaling or "weak",
            folder=Path(self.where).parent,
            timeout_s=(table.timeout or command.DEFAULT_TIMEOUT).seconds,
            **self._testbed_fields(),
        )

    def _own_axes(self) -> dict[str, Any]:
        return {key: value for key, value in self.axes.items() if is_commands_own(key)}

    def _timeline(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(resolve_timeline(self.spec.timeline, self.where))

    def _testbed_fields(self) -> dict[str, Any]:
        """Testbed, emulator, and the containers' settings on docker."""
        run = self.spec.run
        if run.testbed == "virtual":
            return {"testbed": "virtual", "emulator": None}
        testbed: str = run.testbed
        if testbed == "auto":
            testbed = self.chosen["testbed"] = self.host.testbed()
        emulator: str = run.emulator
        if emulator == "auto":
            emulator = self.chosen.setdefault("emulator", {})[testbed] = self.host.emulator(testbed)
        containers = self.spec.containers if testbed == "docker" else ContainersTable()
        return {"testbed": testbed, "emulator": emulator, "containers": containers}


def _algorithms(spec: Spec, where: str) -> dict[str, _Choice]:
    """(kind, params) of every algorithm by its label, with lists expanded."""
    labelled: dict[str, _Choice] = {}
    for key, table in spec.algorithms.items():
        params = dict(table)
        kind = str(params.pop("kind", key))
        with as_spec_error(f"{where}: algorithms.{key}", ValueError):
            for combination in alternatives(kind, params):
                algorithm = registry.algorithm(kind, combination)
                label = algorithm.label if key == kind else f"{key}{algorithm.label.removeprefix(algorithm.kind)}"
                if label == BASELINE:
                    raise ValueError(f"{BASELINE!r} is the name of the cell that measures T(1); choose another name")
                if label in labelled:
                    raise ValueError(f"two algorithms are labelled {label!r}; rename or remove one")
                labelled[label] = kind, combination
    return labelled


_KEY = "workload.step_time"
_DEFAULT = "default"


def with_step_times(cell: TrainingCell, where: str) -> TrainingCell:
    """Resolve a table by site or a list by rank, as the cell has placed its workers. Equal times are one time.

    Raises:
        SpecError: a worker has no time, or an entry is wrong; one line.
    """
    given = cell.task.step_time
    if given is None or isinstance(given, str):
        return cell
    with as_spec_error(where, WorkloadError):
        if isinstance(given, Mapping):
            by_rank = _by_site(given, cell.profile, cell.placement)
        else:
            by_rank = _by_rank(given, cell.workers)
    task = cell.task.model_copy(update={"step_time": str(max(by_rank))})
    return replace(cell, task=task, step_times=by_rank if len(set(by_rank)) > 1 else ())


def with_base_time(alone: TrainingCell, cell: TrainingCell) -> TrainingCell:
    """The one-worker cell whose step time is the unit of scalability of `cell`.

    N machines that never wait make sum(1 / T_i) steps a second together. A worker of the harmonic mean of their step
    times makes 1/N of them.
    """
    if not cell.step_times:
        return replace(alone, task=cell.task)
    mean_ns = statistics.harmonic_mean([time.ns for time in cell.step_times])
    return replace(alone, task=cell.task.model_copy(update={"step_time": str(Delay(round(mean_ns)))}))


def _by_rank(given: Sequence[str], workers: int) -> tuple[Delay, ...]:
    if len(given) != workers:
        raise WorkloadError(
            f"{_KEY}: {len(given)} time{'s' * (len(given) != 1)} for workers = {workers}; expected one for each "
            'rank, or a table by site, such as { tokyo = "780ms", default = "300ms" }'
        )
    return tuple(duration(f"{_KEY}.{rank}", text) for rank, text in enumerate(given))


def _by_site(given: Mapping[str, str], profile: Profile, placement: Sequence[str]) -> tuple[Delay, ...]:
    times: dict[str, Delay] = {}
    for alias, text in given.items():
        name = alias if alias == _DEFAULT else _site(alias, profile)
        if name in times:
            raise WorkloadError(f"{_KEY}: {name!r} has two times, one as {alias!r}; expected one for each site")
        times[name] = duration(f"{_KEY}.{alias}", text)
    missing = [site for site in dict.fromkeys(placement) if site not in times]
    if missing and _DEFAULT not in times:
        raise WorkloadError(
            f"{_KEY}: no time for {', '.join(missing)}; expected one for each site with a worker, or {_DEFAULT} for "
            "the others"
        )
    return tuple(times.get(site) or times[_DEFAULT] for site in placement)


def _site(alias: str, profile: Profile) -> str:
    try:
        return profile.site(alias).name
    except ProfileError as error:
        raise WorkloadError(f"{_KEY}.{alias}: {error}{did_you_mean(alias, (_DEFAULT,))}") from None
