"""What workers may say: the schema of every message, checked before anything reads it.

A worker runs users' code, or a user's own image, so a message can be anything. What a schema does not name is dropped.

`OfJob` and `OfProgram` check what a worker may still say. Every message is progress, and their number is finite. So a
worker that goes on talking is no longer waited for than one that is silent.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from wanbench.harness.testbeds.base import WorkerDied
from wanbench.workloads.loop.job import Job, StepRow
from wanbench.workloads.process.control import ControlError, text
from wanbench.workloads.process.finished import Counters, FinishedJob, FinishedProgram
from wanbench.workloads.wire import MANY, Bounds, Count, Number, Whole, Word

_LONGEST_REASON = 10_000
_MOST_ROWS = 1_000_000
_ROUNDS = 2  # `workloads.loop.train`: at most as many as this times the least
_WINDOWS = 2  # read during training


def _schema(name: str, **fields: Any) -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(TypedDict(name, {"cmd": str, **fields}))  # type: ignore[operator]


def _fields(declared: type) -> dict[str, Any]:
    return get_type_hints(declared, include_extras=True)


def _event(cmd: str, event: str, **fields: Any) -> TypeAdapter[dict[str, Any]]:
    return _schema(f"{cmd} {event}", event=str, **fields)


_Truth = Annotated[bool, Bounds()]
_Rows = Annotated[list[StepRow], Bounds(min_length=1, max_length=_MOST_ROWS, fail_fast=True)]
_Segments = Annotated[list[Annotated[list[Whole], Bounds(min_length=6, max_length=6)]], MANY]
_Changed = tuple[Word, Word] | None  # `workloads.process.configuration.Change`
_TIMES = {"due_ns": Whole, "at_ns": Count}

# By command; for events and roles by both.
SCHEMAS = {
    "ready": _schema("ready", address=Word),
    "tcp": _schema("tcp", tcp=Annotated[dict[Word, Word], Bounds(max_length=100)]),
    "counters": _schema("counters", **_fields(Counters)),
    "probe listen": _schema("probe listen", role=str, port=Annotated[int, Bounds(ge=1, lt=1 << 16)]),
    "probe send": _schema("probe send", role=str, shift_ns=Count),
    "probe receive": _schema("probe receive", role=str, segments=_Segments),
    "probe close": _schema("probe close", role=str),
    "job joined": _event("job", "joined"),
    "job warming": _event("job", "warming"),
    "job warm": _event("job", "warm", now_ns=Count),
    "job step": _event("job", "step", step=Count, now_ns=Count),
    "job rows": _event("job", "rows", rows=_Rows),
    "job evaluating": _event("job", "evaluating"),
    "job finished": _event("job", "finished", **_fields(FinishedJob)),
    "job killed": _event("job", "killed", again=_Truth, **_TIMES),
    "job restarted": _event("job", "restarted", **_TIMES),
    "job stopped": _event("job", "stopped", reason=Annotated[str, Bounds(max_length=_LONGEST_REASON)]),
    "job left": _event("job", "left", changed=_Changed),
    "program started": _event("program", "started"),
    "program exited": _event("program", "exited", process=Count, code=Whole, seconds=Number),
    "program killed": _event(
        "program", "killed", again=_Truth, processes=Annotated[list[Count], Bounds(max_length=1000)], seconds=Number,
        **_TIMES,
    ),
    "program restarted": _event("program", "restarted", **_TIMES),
    "program finished": _event("program", "finished", **_fields(FinishedProgram)),
}  # fmt: skip
_SECOND: dict[str, Literal["event", "role"]] = {"job": "event", "program": "event", "probe": "role"}


def kind_of(message: dict[str, Any]) -> str:
    """The key of a message in `SCHEMAS`. Raises: ControlError, if it has none."""
    command = text(message, "cmd")
    second = _SECOND.get(command)
    return command if second is None else f"{command} {text(message, second)}"


def checked(message: dict[str, Any], expected: str = "") -> dict[str, Any]:
    """Return what a worker said, with the values that its schema names.

    Args:
        expected: the only kind of message that is possible now.

    Raises:
        ControlError: it is none of `SCHEMAS`, or another one.
    """
    kind = kind_of(message)
    if kind not in SCHEMAS or expected not in ("", kind):
        what = expected or "a message that workers send"
        raise ControlError(f"control channel: expected {what}, got {kind[:60]!r}")
    try:
        return SCHEMAS[kind].validate_python(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"])
        raise ControlError(f"control channel: {kind}: {where!r}: {first['msg']}") from None


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
            self._remaining = Counter({"job restarted": int(message["again"] and self._restarts > 0), "job left": 1})
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
