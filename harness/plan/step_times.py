"""The step time of each worker, for machines that differ: a table by site or a list by rank, resolved in a cell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.cell import TrainingCell
from wanbench.netprofiles import Delay, Profile, ProfileError, did_you_mean
from wanbench.workloads.data.errors import WorkloadError
from wanbench.workloads.workload_keys import duration

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
    try:
        by_rank = _by_site(given, cell.profile, cell.placement) if isinstance(given, Mapping) else _by_rank(given, cell)
    except WorkloadError as error:
        raise SpecError(f"{where}: {error}") from None
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


def _by_rank(given: Sequence[str], cell: TrainingCell) -> tuple[Delay, ...]:
    if len(given) != cell.workers:
        raise WorkloadError(
            f"{_KEY}: {len(given)} time{'s' * (len(given) != 1)} for workers = {cell.workers}; expected one for each "
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
        near = did_you_mean(alias, (_DEFAULT,))
        raise WorkloadError(f"{_KEY}.{alias}: {error}{near}") from None
