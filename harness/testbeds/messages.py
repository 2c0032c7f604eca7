"""What workers may say: the schema of every message, checked before anything reads it.

A worker runs users' code, or a user's own image, so a message can be anything. What a schema does not name is dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from wanbench.workloads.loop.job import StepRow
from wanbench.workloads.process.control import ControlError, text
from wanbench.workloads.process.finished import Counters, FinishedJob, FinishedProgram
from wanbench.workloads.wire import MANY, Bounds, Count, Number, Whole, Word

_LONGEST_REASON = 10_000
_MOST_ROWS = 1_000_000


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
