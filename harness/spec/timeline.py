"""A [[timeline]] entry of a spec: a change of the network or of workers, as the user writes it; and recorded traces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from wanbench.harness.errors import as_spec_error
from wanbench.harness.spec.tables import Table, quantity
from wanbench.netprofiles import UnitError
from wanbench.netprofiles.impairments import ONE_WAY, RATE, RTT
from wanbench.netprofiles.path import EFFECTS
from wanbench.netprofiles.units import Delay, Packets, Quantity, Rate, Ratio
from wanbench.netprofiles.user_file import number, read_table, read_text

TIME = "time_s"
TRACED = {value.column: value for value in (RTT, ONE_WAY, *EFFECTS, RATE)}
VALUES = tuple(TRACED)
COUNTS = {column for column, value in TRACED.items() if value.unit is Packets}  # of packets in a row; 0 is none
MOST_LINES = 2000
LONGEST_S, LEAST_MBPS, MOST_MBPS = 10**6, 1e-6, 10**6  # limits of all times, delays and rates; nanoseconds fit 64 bits
MOST_PACKETS = 10**6

Point = dict[str, float]

_SPANS: Mapping[type[Quantity], tuple[float, float]] = {
    Delay: (0, 1000 * LONGEST_S),
    Rate: (LEAST_MBPS, MOST_MBPS),
    Ratio: (0, 100),
    Packets: (1, MOST_PACKETS),
}
_RANGES = {TIME: (0, LONGEST_S), **{column: _SPANS[value.unit] for column, value in TRACED.items()}}

KINDS = ("rtt", "one_way", *(effect.key for effect in EFFECTS), "rate", "cut", "traffic", "trace", "slow", "kill")
_DONE = {"slow": "slow", "kill": "killed"}
_STEPS = re.compile(r"[1-9][0-9]{0,8} steps?")

_NAME = r'(".+?"|.*?)'
_WHERE = re.compile(rf"\s*{_NAME}\s*(?:(<->|->)\s*{_NAME}\s*)?", re.DOTALL)

_MOST_FACTOR = 1e6
Factor = Annotated[float, Field(ge=0, le=_MOST_FACTOR)]


def ends_of(where: str) -> tuple[str, str | None, str | None]:
    """The parts of a place: a name, and of a path the arrow and the other name.

    A name in quotes is a site's: also one that is a number, or has an arrow in it.
    """
    first, arrow, second = _WHERE.fullmatch(where).groups()  # type: ignore[union-attr]  # it matches any text
    return first, arrow, second


_LIMITS: Mapping[type[Quantity], str] = {Delay: f"{LONGEST_S} s", Rate: f"{MOST_MBPS} Mbit"}


def _within(kind: type[Quantity], text: str) -> Quantity:
    """Parse a quantity. Raises: UnitError: it is none, or above the limit of its kind."""
    value = kind.parse(text)
    limit = _LIMITS.get(kind)
    if limit is not None and value.plain > kind.parse(limit).plain:
        raise UnitError(f"expected at most {limit}, got {text!r}")
    return value


def _spelled(kind: type[Quantity]) -> AfterValidator:
    def check(value: object) -> object:
        if isinstance(value, str):
            _within(kind, value)
        return value

    return AfterValidator(check)


def _moment(text: str) -> str:
    if not _STEPS.fullmatch(text):
        try:
            Delay.parse(text)
        except UnitError:
            raise ValueError(f'expected a time such as "5s", or a count such as "40 steps", got {text!r}') from None
        _within(Delay, text)
    return text


def _span(text: str) -> str:
    if not _within(Delay, text).plain:
        raise ValueError(f"expected more than 0, got {text!r}")
    return text


def _key(meaning: str | None, **more: Any) -> Any:
    return Field(default=None, description=meaning, **more)


DelayOrFactor = Annotated[str | Factor | None, _spelled(Delay)]
RateOrFactor = Annotated[str | Annotated[float, Field(ge=1 / _MOST_FACTOR, le=_MOST_FACTOR)] | None, _spelled(Rate)]
Span = Annotated[str, AfterValidator(_span)]


def _new(kind: type[Quantity]) -> Any:
    """The type of a key that changes a value of this kind."""
    if kind is Delay:
        return DelayOrFactor
    return quantity(kind) | None if kind.scale.bare else Annotated[str | None, _spelled(kind)]


class _Moments(Table):
    at: Annotated[str, AfterValidator(_moment)] = Field(
        description='Start of the change, such as "5s" or "40 steps" after training began.'
    )
    for_: Span | None = _key("Duration; default: until the end.", alias="for")
    where: str | Annotated[int, Field(ge=0)] | None = _key(
        'A path "a -> b", a pair "a <-> b", a site, or the number of a worker; default: everywhere.'
    )
    every: Span | None = _key("Interval between repetitions.")
    times: int | None = _key("Number of repetitions.", ge=1, le=1000)
    rtt: DelayOrFactor = _key("New round-trip time, or a factor on it.")
    one_way: DelayOrFactor = _key("New one-way delay, or a factor on it.")


if TYPE_CHECKING:
    _Effects = _Moments
else:  # one key per effect: a delay is a value or a factor, all others are values
    _Effects = create_model(
        "_Effects",
        __base__=_Moments,
        **{effect.key: (_new(effect.unit), _key(effect.changed)) for effect in EFFECTS},
    )


class ChangeTable(_Effects):
    """One change: when, where, what and for how long. Exactly one of `KINDS` is the change.

    A trace is a CSV file or, in the resolved spec of a run, its lines.
    """

    rate: RateOrFactor = _key("New rate, or a factor on it.")
    cut: bool | None = _key("Whether all packets are lost.")
    traffic: Annotated[str | None, _spelled(Rate)] = _key("Rate of the traffic of others.")
    trace: str | Annotated[list[dict[str, float | int]], Field(min_length=1)] | None = _key(
        "CSV file of values over time."
    )
    slow: Annotated[float, Field(gt=0, le=_MOST_FACTOR)] | None = _key(
        'Factor on emulated compute from the next step on. With at = "9 steps", each worker counts its own steps.'
    )
    kill: bool | None = _key("Kill the training processes of a worker, and start them again after `for`.")

    @field_validator("trace")
    @classmethod
    def _lines(cls, trace: str | list[dict[str, float]] | None) -> str | list[dict[str, float]] | None:
        if isinstance(trace, list):
            check_points(trace)
        return trace

    @field_validator("cut", "kill")
    @classmethod
    def _true(cls, value: bool | None, info: Any) -> bool | None:
        if value is False:
            raise ValueError(f"expected true; remove {info.field_name} if nothing changes")
        return value

    @model_validator(mode="after")
    def _whole(self) -> ChangeTable:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            got = f"got {' and '.join(given)}" if given else "got none"
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}, {got}")
        if self.times is not None and self.every is None:
            raise ValueError('times: needs an interval; add every = "2s"')
        if self.every is not None:
            if self.for_ is None:
                raise ValueError('every: a change that repeats needs a duration; add for = "1s"')
            if self.times is None:
                raise ValueError("every: needs a number of repetitions; add times = 5")
            if Delay.parse(self.every).ns <= Delay.parse(self.for_).ns:
                raise ValueError(f"every: expected more than for, {self.for_}, got {self.every}")
        arrow = ends_of(self.where)[1] if isinstance(self.where, str) else None
        if arrow == "->" and self.rtt is not None:
            raise ValueError('rtt: a directed path has a one-way delay; use one_way, or where = "a <-> b"')
        for how in ("slow", "kill"):
            if getattr(self, how) is not None and arrow is not None:
                raise ValueError(f"where: only workers are {_DONE[how]}, not paths; name a site or a worker's number")
        if self.kill is not None and self.where is None:
            raise ValueError("where: required with kill; name a site or a worker's number")
        return self


# ---------------------------------------------------------------- recorded traces


def read_trace(path: Path, where: str) -> list[Point]:
    """Read the lines of a trace: `time_s`, and the values from then on.

    Columns: `time_s`, which grows from line to line, and at least one of `VALUES`. An empty field keeps the value of
    the line before; in the first line, it keeps the value of the path without the trace.

    Raises:
        SpecError: no such file, or a wrong line; `where` names the key in the spec.
    """
    points: list[Point] = []
    with as_spec_error(f"{where}: {path}", ValueError):  # FileError is a ValueError
        rows = read_table(read_text(path, "CSV"))
        _, names = next(rows, (1, []))
        _check_columns(names)
        for line, cells in rows:
            if len(points) == MOST_LINES:
                raise ValueError(f"expected 1 to {MOST_LINES} lines of values, got more")
            try:
                points.append({**(points[-1] if points else {}), **_point(zip(names, cells, strict=True))})
            except ValueError as error:
                raise ValueError(f"line {line}: {error}") from None
        check_points(points)
    return points


def check_points(points: Sequence[Mapping[str, float]]) -> None:
    """Check the lines of a trace. Raises: ValueError."""
    if not 1 <= len(points) <= MOST_LINES:
        raise ValueError(f"expected 1 to {MOST_LINES} lines of values, got {len(points)}")
    for point in points:
        _check_columns(point)
        for name, value in point.items():
            low, high = _RANGES[name]
            zero = "0, or " if name in COUNTS else ""
            if not (low <= value <= high or (zero and value == 0)):
                got = f"{value:g}" if isinstance(value, float) else value
                raise ValueError(f"{name}: expected {zero}{low} to {high}, got {got}")
    for before, after in pairwise(points):
        if round(after[TIME] * 1e9) <= round(before[TIME] * 1e9):
            raise ValueError(f"{TIME}: expected more than {before[TIME]:g}, as in the line before, got {after[TIME]:g}")


def _check_columns(names: Iterable[str]) -> None:
    given = list(names)
    if not {TIME, *VALUES}.issuperset(given) or TIME not in given or len(given) < 2:
        columns = f"{TIME} and at least one of {', '.join(VALUES)}"
        raise ValueError(f"expected the columns {columns}, got {_shown(given)}")
    if len(set(given)) < len(given):
        raise ValueError(f"two columns have the same name; keep one: {_shown(given)}")
    if "rtt_ms" in given and "one_way_ms" in given:
        raise ValueError("rtt_ms and one_way_ms set the same delay; keep one")


def _shown(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names)) or "none"
    return text if len(text) < 200 else f"{text[:200]}..."


def _point(fields: Iterable[tuple[str, str]]) -> Point:
    point = {name: number(name, text) for name, text in fields if text}
    if TIME not in point:
        raise ValueError(f"{TIME}: missing")
    return point
