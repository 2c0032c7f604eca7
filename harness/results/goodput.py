"""What is left of training when workers are lost: steps that count, and what recovery costs. Pure.

A step of a worker counts if its gradient is in the final model. Between two epochs of the membership

* a member whose model was taken into the next epoch counts with all its steps;
* of a lost member, and of one that took the model of others, those count that the others had averaged by then:
  floor((n - D) / p) p of n steps.

Goodput is the share of a run without losses: with c counted steps of all N workers in the time t, and T seconds a step
without losses, it is c T / (N t).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.grouping import by_key
from wanbench.harness.results.hosts import by_run, hosts_of
from wanbench.harness.results.scalability import Row, StepTimes, host_of
from wanbench.workloads.loop.job import Regrouped


def recovered(
    histories: Sequence[Sequence[Regrouped]],
    workers: int,
    steps: int,
    *,
    delay: int,
    period: int,
    alike: bool = False,
) -> dict[str, Any]:
    """Return the columns that tell what was lost and recovered, without `lost_steps`.

    Args:
        histories: by worker that was there at the end, the epochs that it entered.
        steps: number of steps of the run. delay, period: D and p of the algorithm.
        alike: whether the models of all members are taken, however many steps they have made (`loop.elastic`).
    """
    entered = by_key((epoch.epoch, epoch) for history in histories for epoch in history)
    began = dict.fromkeys(range(workers), 0)  # by member of the present epoch, its step at the begin
    counted = 0
    for _, views in sorted(entered.items()):
        made = dict(zip(views[0].members, views[0].steps, strict=True))
        furthest = max(step for step in made.values() if step is not None)
        for rank, begin in began.items():
            step = made.get(rank)
            averaged = max(0, furthest - delay) // period * period
            taken = step is not None and (alike or step // period == furthest // period)
            counted += max(0, (step if taken and step is not None else averaged) - begin)
        began = dict.fromkeys(views[0].members, furthest)
    counted += sum(steps - begin for begin in began.values())
    stood_ns = sum(max(view.ended_ns - view.begun_ns for view in views) for views in entered.values())
    return {
        "counted_steps": counted,
        "membership_changes": len(entered),
        "recovery_s": stood_ns / 1e9,
        "recovery_bytes": sum(view.payload_bytes for views in entered.values() for view in views),
    }


def undisturbed_step_times(rows: Sequence[Row]) -> StepTimes:
    """T in seconds by run, cell and host: the median step time of the valid repetitions of each cell without losses.

    If all hosts are alike, the host is None, because each may have only some repetitions of a cell.
    """
    alike = all(hosts_of(of_run).problem is None for of_run in by_run(rows).values())
    return StepTimes(lambda row: row.get("counted_steps") is None, (lambda _: None) if alike else host_of, rows)


def goodput(row: Row, undisturbed: Mapping[tuple[Any, Any, str | None], float]) -> float | None:
    """The share of a run without losses. None if nothing can be lost, or if the cell without losses has no time yet."""
    of_cell = row.get("run"), row.get("undisturbed_key")
    step_time_s = undisturbed.get((*of_cell, host_of(row)), undisturbed.get((*of_cell, None)))
    if row.get("counted_steps") is None or row["status"] != "ok" or not row["step_time_s"] or step_time_s is None:
        return None
    return float(row["counted_steps"] * step_time_s / (row["workers"] * row["step_time_s"] * row["steps"]))


def set_goodput(rows: Sequence[Any]) -> None:
    """Compute every goodput from the cells among these rows that lose no workers. Rows without one keep their value."""
    undisturbed = undisturbed_step_times(rows)
    for row in rows:
        row["goodput"] = goodput(row, undisturbed) or row.get("goodput")
