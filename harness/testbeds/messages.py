"""What workers may say: the schema of every message, checked before anything reads it.

A worker runs users' code, or a user's own image, so a message can be anything. What a schema does not name is dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field, Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from wanbench.workloads.comm.meter import JOURNAL_LIMIT
from wanbench.workloads.process.control import ControlError, text

Count = Annotated[int, Strict(), Field(ge=0, lt=1 << 63)]
Whole = Annotated[int, Strict(), Field(ge=-(1 << 63), lt=1 << 63)]
Number = Annotated[float, Strict()]
Word = Annotated[str, Strict(), Field(max_length=200)]
Counters = Annotated[dict[Word, Count], Field(max_length=100)]
_MANY = 1_000_000
_LONGEST_REASON = 10_000


@with_config(ConfigDict(strict=True))
class Counted(TypedDict):
    """The counters of a worker's device, of its TCP, and of its threads."""

    device: Counters
    tcp: Counters
    udp_overflows: Count
    cpu_wait_ns: Count | None


@with_config(ConfigDict(strict=True))
class StepRow(TypedDict):
    """One step, as `workloads.loop.train` measures it."""

    rank: Count
    step: Count
    end_ns: Count
    step_time_s: Number
    compute_s: Number
    stall_s: Number
    overhead_s: Number
    payload_bytes: Count
    messages_sent: Count
    loss: Number | None


@with_config(ConfigDict(strict=True))
class Sums(TypedDict):
    """Sums over steps."""

    compute_ns: Whole
    stall_ns: Whole
    payload_bytes: Count
    messages_sent: Count
    blocks_expected: Count
    blocks_lost: Count


@with_config(ConfigDict(strict=True))
class Evaluated(TypedDict):
    """An accuracy during training."""

    step: Count
    end_ns: Count
    accuracy: Number


@with_config(ConfigDict(strict=True))
class Sent(TypedDict):
    """A message between workers: `workloads.comm.meter.Message`."""

    kind: Word
    nbytes: Count
    issued_ns: Count
    ended_ns: Count | None
    collected_ns: Count | None
    stall_ns: Count


@with_config(ConfigDict(strict=True))
class Epoch(TypedDict):
    """The change to an epoch: `workloads.loop.elastic.Regrouped`."""

    epoch: Count
    members: Annotated[list[Count], Field(max_length=_MANY)]
    steps: Annotated[list[Count | None], Field(max_length=_MANY)]
    step: Count
    begun_ns: Count
    ended_ns: Count
    payload_bytes: Count


@with_config(ConfigDict(strict=True))
class Outcome(TypedDict):
    """`workloads.loop.train.Outcome` as plain data."""

    window_begin_ns: Count
    window_end_ns: Count
    window: Sums
    total: Sums
    final_loss: Number | None
    replica_spread: Number | None
    evaluations: Annotated[list[Evaluated], FailFast(), Field(max_length=_MANY)]
    messages: Annotated[list[Sent], FailFast(), Field(max_length=JOURNAL_LIMIT)]
    slowed_ns: Annotated[list[list[Count | None]], FailFast(), Field(max_length=_MANY)]
    tcp_windows: Annotated[list[Count], Field(min_length=2, max_length=2)]
    epochs: Annotated[list[Epoch], FailFast(), Field(max_length=_MANY)]


@with_config(ConfigDict(strict=True))
class Processor(TypedDict):
    """Processor time of a worker's programs."""

    waited_s: Number
    used_s: Number


_Cause = Literal["paused", "stopped", "throttled", "swapped"]
# `workloads.process.heartbeat.Lost`, a list in JSON
_Lost = Annotated[tuple[_Cause, Count, Count], Strict(False)]
_LOST = Annotated[list[_Lost], FailFast(), Field(max_length=_MANY)]


# `workloads.imported.noted`: module, path and SHA-256, a list in JSON
_Part = Annotated[str, Strict(), Field(max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_IMPORTS = Annotated[list[Annotated[tuple[_Part, _Part, _Part], Strict(False)]], FailFast(), Field(max_length=_MANY)]


def _schema(name: str, **fields: Any) -> TypeAdapter[dict[str, Any]]:
    kind = with_config(ConfigDict(strict=True))(TypedDict(name, {"cmd": str, **fields}))  # type: ignore[operator]
    return TypeAdapter(kind)


def _event(cmd: str, event: str, **fields: Any) -> TypeAdapter[dict[str, Any]]:
    return _schema(f"{cmd} {event}", event=str, **fields)


_Segments = Annotated[
    list[Annotated[list[Whole], Field(min_length=5, max_length=5)]], FailFast(), Field(max_length=_MANY)
]
_Changed = Annotated[tuple[Word, Word], Strict(False)] | None  # `workloads.process.configuration.Change`
_TIMES = {"due_ns": Whole, "at_ns": Count}
_BEFORE_AND_AFTER = {"counters_before": Counted, "counters_after": Counted}

# By command; for events and roles by both.
SCHEMAS = {
    "ready": _schema("ready", address=Word),
    "tcp": _schema("tcp", tcp=Annotated[dict[Word, Word], Field(max_length=100)]),
    "counters": _schema("counters", **Counted.__annotations__),
    "probe listen": _schema("probe listen", role=str, port=Annotated[Count, Field(ge=1, lt=1 << 16)]),
    "probe send": _schema("probe send", role=str, shift_ns=Count),
    "probe receive": _schema("probe receive", role=str, segments=_Segments),
    "probe close": _schema("probe close", role=str),
    "job joined": _event("job", "joined"),
    "job warming": _event("job", "warming"),
    "job warm": _event("job", "warm", now_ns=Count),
    "job step": _event("job", "step", step=Count, now_ns=Count),
    "job rows": _event("job", "rows", rows=Annotated[list[StepRow], FailFast(), Field(min_length=1, max_length=_MANY)]),
    "job evaluating": _event("job", "evaluating"),
    "job finished": _event("job", "finished", outcome=Outcome, imports=_IMPORTS, lost=_LOST, **_BEFORE_AND_AFTER),
    "job killed": _event("job", "killed", again=bool, **_TIMES),
    "job restarted": _event("job", "restarted", **_TIMES),
    "job stopped": _event("job", "stopped", reason=Annotated[str, Strict(), Field(max_length=_LONGEST_REASON)]),
    "job left": _event("job", "left", changed=_Changed),
    "program started": _event("program", "started"),
    "program exited": _event("program", "exited", process=Count, code=Whole, seconds=Number),
    "program killed": _event(
        "program", "killed", again=bool, processes=Annotated[list[Count], Field(max_length=1000)], seconds=Number,
        **_TIMES,
    ),
    "program restarted": _event("program", "restarted", **_TIMES),
    "program finished": _event(
        "program", "finished", imports=_IMPORTS, lost=_LOST, processor=Processor, changed=_Changed, **_BEFORE_AND_AFTER
    ),
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
        wanted = expected or "a message that workers send"
        raise ControlError(f"control channel: expected {wanted}, got {kind[:60]!r}")
    try:
        return SCHEMAS[kind].validate_python(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:60] for part in first["loc"])
        raise ControlError(f"control channel: {kind}: {place!r}: {first['msg']}") from None
