"""What the workers of one repetition may still say. Every message is progress, and their number is finite.

So a worker that goes on talking is no longer waited for than one that is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.messages import kind_of
from wanbench.workloads.loop.job import Job, StepRow

_ROUNDS = 2  # `workloads.loop.train`: at most as many as this times the least
_WINDOWS = 2  # read during training


class OfProgram:
    """The worker that runs processes of a program.

    Args:
        restarts: how often the timeline starts its processes again.
    """

    def __init__(self, rank: int, processes: int, restarts: int = 0) -> None:
        self._rank = rank
        self._processes = processes
        self._remaining = Counter(
            {
                "program started": 1,
                "program exited": processes * (restarts + 1),
                "program killed": restarts + 1,
                "program restarted": restarts,
                "program finished": 1,
            }
        )

    def hear(self, message: dict[str, Any]) -> None:
        """Note a message. Raises: WorkerDied, if it could not be said now."""
        kind = kind_of(message)
        _spend(self._rank, self._remaining, kind)
        if kind == "program finished":
            self._remaining.clear()
        named = [message["process"]] if kind == "program exited" else message.get("processes", [])
        if any(number >= self._processes for number in named):
            raise _refused(self._rank, f"{kind}: it has no process {max(named)}")


class OfJob:
    """The worker that trains.

    Args:
        restarts: how often the timeline starts it again.
    """

    def __init__(self, job: Job, restarts: int = 0) -> None:
        self._job, self._restarts = job, restarts
        self._mortal = job.deadline_s is not None
        self._next = 0  # step
        self._told = set(job.told_steps)
        self._remaining = Counter({"job joined": 1})

    def hear(self, message: dict[str, Any]) -> None:
        """Note a message. Raises: WorkerDied, if it could not be said now."""
        kind = kind_of(message)
        _spend(self._job.rank, self._remaining, kind)
        if kind == "job joined":
            self._remaining = Counter({"job warming": _ROUNDS * self._job.warm_rounds + _WINDOWS, "job warm": 1})
        elif kind == "job warm":
            self._hear_begin()
        elif kind == "job restarted":
            self._restarts -= 1
            self._next, self._told = 0, set(self._job.told_steps)
            self._remaining = Counter({"job warming": _WINDOWS})
            self._hear_begin()
        elif kind == "job step":
            if message["step"] not in self._told:
                raise _refused(self._job.rank, f"job step: not asked for {message['step']}, or told before")
            self._told.remove(message["step"])
        elif kind == "job rows":
            self._hear_rows(message["rows"])
        elif kind == "job killed":
            again = message["again"] and self._restarts > 0
            self._remaining = Counter({"job restarted": int(again), "job left": 1})
        elif kind in ("job finished", "job stopped"):
            self._remaining = Counter({"job left": 1})

    def _hear_begin(self) -> None:
        """It trains from now on. If others can be killed, it can finish without having made each step."""
        evaluations = self._job.steps // self._job.eval_every + 2 if self._job.eval_every else 1  # first and last
        self._remaining |= Counter(
            {"job step": len(self._told), "job rows": self._job.steps, "job evaluating": evaluations}
        )
        if self._mortal:
            # It can hear "leave" right after "restart".
            self._remaining |= Counter({"job killed": 1, "job stopped": 1, "job finished": 1, "job left": 1})

    def _hear_rows(self, rows: Sequence[StepRow]) -> None:
        for row in rows:
            skips = self._mortal and row.step > self._next
            if row.rank != self._job.rank or (row.step != self._next and not skips):
                at = f"rank {row.rank}, step {row.step}"
                raise _refused(self._job.rank, f"job rows: expected step {self._next} of this worker, got {at}")
            self._next = row.step + 1
        if self._next > self._job.steps:
            raise _refused(self._job.rank, f"job rows: more than its {self._job.steps} steps")
        if self._next == self._job.steps:
            self._remaining["job finished"] = 1


def _spend(rank: int, remaining: Counter[str], kind: str) -> None:
    if remaining[kind] <= 0:
        raise _refused(rank, f"{kind}: not now, or too often")
    remaining[kind] -= 1


def _refused(rank: int, why: str) -> WorkerDied:
    return WorkerDied(rank, f": control channel: {why}", "ControlError")
