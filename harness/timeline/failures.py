"""Workers or sites that fail at random: the kills of one repetition, drawn from its seed. Pure.

Each machine works for a time that is exponentially distributed with mean MTBF, then it is dead for one with mean MTTR.
Machines are independent, except that a failure does not happen if it would leave no worker that has been there for some
time: then no worker might have a model, and there are no checkpoints. Equal seeds give equal times, whatever the
algorithm, so algorithms are compared under the same failures.
"""

import random
from collections.abc import Iterator, Mapping, Sequence

from wanbench.harness.timeline.changes import Change

_NS = 1e9
Machine = str | int


def failures(
    mtbf_s: float,
    mttr_s: float,
    machines: Mapping[Machine, Sequence[int]],
    *,
    seed: int,
    until_s: float,
    settled_s: float = 0.0,
) -> tuple[Change, ...]:
    """Return the kills that happen before `until_s`, in order.

    Args:
        mtbf_s: mean time from the start, or a repair, to the next failure, in seconds. mttr_s: mean time to repair.
        machines: the workers of each machine, by its name in a timeline: a worker's number, or a site.
        settled_s: a worker that returned is sure to have a model again after so many seconds.
    """
    workers = {rank for ranks in machines.values() for rank in ranks}
    drawn = sorted(failure for machine in machines for failure in _failures_of(machine, mtbf_s, mttr_s, seed, until_s))
    until: dict[int, float] = {}
    kills = []
    for begin, end, _, machine in drawn:
        down = {rank for rank, repaired in until.items() if repaired + settled_s > begin}
        if workers - down - set(machines[machine]):
            until.update(dict.fromkeys(machines[machine], end))
            at_ns = round(begin * _NS)
            for_ns = max(1, round(end * _NS) - at_ns)
            kills.append(Change("kill", True, machine, at_ns, at_step=None, for_ns=for_ns, every_ns=None, times=1))
    return tuple(kills)


def _failures_of(
    machine: Machine, mtbf_s: float, mttr_s: float, seed: int, until_s: float
) -> Iterator[tuple[float, float, str, Machine]]:
    """Yield begin and end of each failure of one machine, in seconds, with what sorts and names it."""
    drawing = random.Random(f"failures {seed} {machine}")
    now = drawing.expovariate(1 / mtbf_s)
    while now < until_s:
        end = now + drawing.expovariate(1 / mttr_s)
        yield now, end, str(machine), machine
        now = end + drawing.expovariate(1 / mtbf_s)
