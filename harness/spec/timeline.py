"""[[timeline]] of a spec: one change of the network or of workers, as the user writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from wanbench.harness.spec.table import Table, unit
from wanbench.harness.spec.trace import LONGEST_S, MOST_MBPS, check_points
from wanbench.netprofiles import Delay, Rate, Ratio, UnitError

KINDS = ("rtt", "one_way", "jitter", "rate", "loss", "cut", "traffic", "trace", "slow", "kill")
_DONE = {"slow": "slow", "kill": "killed"}
_STEPS = re.compile(r"[1-9][0-9]{0,8} steps?")

_MOST_FACTOR = 1e6
Factor = Annotated[float, Field(ge=0, le=_MOST_FACTOR)]


def _delay(text: str) -> Delay:
    delay = Delay.parse(text)
    if delay.ns > LONGEST_S * 10**9:
        raise UnitError(f"expected at most {LONGEST_S} s, got {text!r}")
    return delay


def _rate(text: str) -> Rate:
    rate = Rate.parse(text)
    if rate.bps > MOST_MBPS * 10**6:
        raise UnitError(f"expected at most {MOST_MBPS} Mbit, got {text!r}")
    return rate


_PARSERS: Mapping[str, Callable[[str], object]] = {"rtt": _delay, "one_way": _delay, "jitter": _delay, "rate": _rate}


class ChangeTable(Table):
    """One change: when, where, what, for how long. Exactly one of `KINDS` says what.

    A trace is a CSV file, or, as in the resolved spec of a run, its lines.
    """

    at: str
    for_: str | None = Field(default=None, alias="for")
    where: str | Annotated[int, Field(ge=0)] | None = None
    every: str | None = None
    times: int | None = Field(default=None, ge=1, le=1000)
    rtt: str | Factor | None = None
    one_way: str | Factor | None = None
    jitter: str | Factor | None = None
    rate: str | Annotated[float, Field(ge=1 / _MOST_FACTOR, le=_MOST_FACTOR)] | None = None
    loss: str | None = None
    cut: bool | None = None
    traffic: str | None = None
    trace: str | Annotated[list[dict[str, float | int]], Field(min_length=1)] | None = None
    slow: Annotated[float, Field(gt=0, le=_MOST_FACTOR)] | None = None
    kill: bool | None = None

    @field_validator("at")
    @classmethod
    def _moment(cls, text: str) -> str:
        if not _STEPS.fullmatch(text):
            try:
                Delay.parse(text)
            except UnitError:
                raise ValueError(f'expected a time such as "5s", or a count such as "40 steps", got {text!r}') from None
            unit(_delay, text)
        return text

    @field_validator("for_", "every")
    @classmethod
    def _span(cls, text: str | None) -> str | None:
        if text is not None and not Delay.parse(unit(_delay, text) or text).ns:
            raise ValueError(f"expected more than 0, got {text!r}")
        return text

    @field_validator("rtt", "one_way", "jitter", "rate")
    @classmethod
    def _value_or_factor(cls, value: str | float | None, info: Any) -> str | float | None:
        if isinstance(value, str):
            unit(_PARSERS[info.field_name], value)
        return value

    @field_validator("loss")
    @classmethod
    def _loss(cls, text: str | None) -> str | None:
        return unit(Ratio.parse, text)

    @field_validator("traffic")
    @classmethod
    def _traffic(cls, text: str | None) -> str | None:
        return unit(_rate, text)

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
            nothing = {"cut": "nothing is cut off", "kill": "nobody is killed"}[info.field_name]
            raise ValueError(f"expected true; leave it out where {nothing}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> ChangeTable:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            got = f"got {' and '.join(given)}" if given else "got none"
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}, {got}")
        if self.times is not None and self.every is None:
            raise ValueError('times: says how often, and nothing says how far apart; add every = "2s"')
        if self.every is not None:
            if self.for_ is None:
                raise ValueError('every: what comes again has to end first; add for = "1s"')
            if self.times is None:
                raise ValueError("every: add times, such as times = 5")
            if Delay.parse(self.every).ns <= Delay.parse(self.for_).ns:
                raise ValueError(f"every: expected more than for, {self.for_}, got {self.every}")
        directed = isinstance(self.where, str) and "->" in self.where.replace("<->", "")
        if directed and self.rtt is not None:
            raise ValueError('rtt: a directed path has a one-way delay; use one_way, or where = "a <-> b"')
        for how in ("slow", "kill"):
            if getattr(self, how) is not None and isinstance(self.where, str) and "->" in self.where:
                raise ValueError(f"where: workers are {_DONE[how]}, not paths; name a site or a worker's number")
        if self.kill is not None and self.where is None:
            raise ValueError("where: not everybody can be killed; name a site or a worker's number")
        return self

    @property
    def kind(self) -> str:
        """The one of `KINDS` that it is."""
        return next(name for name in KINDS if getattr(self, name) is not None)
