"""Delay, Rate, Size and Ratio: text is parsed once at the edge, and no bare number travels inside."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from wanbench.netprofiles.errors import UnitError, did_you_mean

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*([A-Za-zµ%/]*)", re.ASCII)


@dataclass(frozen=True)
class _Scale:
    """How one kind of quantity is written: its units as multiples of the smallest one."""

    kind: str
    example: str
    whole: str
    units: Mapping[str, int]

    def expected(self) -> str:
        units = ", ".join(self.units)
        return f"{self.kind} is a number and one of {units}, such as '{self.example}'"

    def parse(self, text: str) -> int:
        """The quantity in the smallest unit, exactly."""
        number, unit = _split(text, self.expected())
        if not unit:
            raise UnitError(f"{text!r} has no unit; {self.expected()}")
        if unit not in self.units:
            near = did_you_mean(unit, self.units, cutoff=0.5)
            raise UnitError(f"{text!r} has the unknown unit {unit!r}; {self.expected()}{near}")
        exact = number * self.units[unit]
        if exact != exact.to_integral_value():
            raise UnitError(f"{text!r} is not a whole number of {self.whole}; {self.expected()}")
        return int(exact)

    def check(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnitError(f"{self.kind} counts whole {self.whole}, not {value!r}")
        if value < 0:
            raise UnitError(f"{self.kind} cannot be negative: {value} {self.whole}")

    def rounded(self, value: float) -> int:
        if not math.isfinite(value):
            raise UnitError(f"{self.kind} must be finite, not {value}")
        return round(value)

    def text(self, value: int, unit: str) -> str:
        return _plain(Decimal(value) / self.units[unit]) + unit


def _split(text: str, expected: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"{text!r} is not a quantity; {expected}")
    number = Decimal(match[1])
    if number < 0:
        raise UnitError(f"{text!r} is negative; {expected}")
    return number, match[2]


def _plain(number: Decimal) -> str:
    """The decimal without exponent and without trailing zeros."""
    return format(number.normalize(), "f")


_DELAY = _Scale("a delay", "80ms", "ns", {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000})
_RATE = _Scale("a rate", "10Gbit", "bit/s", {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9})
_SIZE = _Scale(
    "a size",
    "25MiB",
    "bytes",
    {"B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30},
)


@dataclass(frozen=True, order=True, slots=True)
class Delay:
    """A span of time, in whole nanoseconds, never negative."""

    ns: int

    def __post_init__(self) -> None:
        _DELAY.check(self.ns)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read '80ms', '1.5s', '200us' or '0ms'.

        Raises:
            UnitError: no unit, an unknown one, a negative value, or a fraction of a nanosecond.
        """
        return cls(_DELAY.parse(text))

    @classmethod
    def from_ms(cls, ms: float) -> Self:
        """The delay nearest to `ms` milliseconds. Raises UnitError if negative or not finite."""
        return cls(_DELAY.rounded(ms * 1e6))

    @property
    def ms(self) -> float:
        """In milliseconds."""
        return self.ns / 1e6

    @property
    def seconds(self) -> float:
        """In seconds."""
        return self.ns / 1e9

    def __str__(self) -> str:
        if self.ns == 0:
            return "0ms"
        return _DELAY.text(self.ns, _largest(self.ns, ("s", "ms", "us", "ns"), _DELAY))


@dataclass(frozen=True, order=True, slots=True)
class Rate:
    """A bit rate, in whole bits per second, above zero. An unlimited rate is None, not a Rate."""

    bps: int

    def __post_init__(self) -> None:
        _RATE.check(self.bps)
        if self.bps == 0:
            raise UnitError("a rate must be above zero; leave it out where nothing limits it")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read '10Gbit', '100Mbit' or '56kbit' (per second).

        Raises:
            UnitError: no unit, an unknown one, zero, a negative value, or a fraction of a bit per second.
        """
        return cls(_RATE.parse(text))

    @classmethod
    def from_mbit(cls, mbit: float) -> Self:
        """The rate nearest to `mbit` Mbit/s. Raises UnitError if not above zero or not finite."""
        return cls(_RATE.rounded(mbit * 1e6))

    @property
    def mbit(self) -> float:
        """In Mbit/s."""
        return self.bps / 1e6

    @property
    def bytes_per_s(self) -> float:
        """In bytes per second."""
        return self.bps / 8

    def __str__(self) -> str:
        return _RATE.text(self.bps, _largest(self.bps, ("Gbit", "Mbit", "kbit", "bit"), _RATE))


@dataclass(frozen=True, order=True, slots=True)
class Size:
    """A number of bytes, never negative."""

    bytes: int

    def __post_init__(self) -> None:
        _SIZE.check(self.bytes)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read '25MiB' (powers of 1024), '64kB' (powers of 1000) or '1500B'.

        Raises:
            UnitError: no unit, an unknown one, a negative value, or a fraction of a byte.
        """
        return cls(_SIZE.parse(text))

    def __str__(self) -> str:
        for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
            if self.bytes and self.bytes % _SIZE.units[unit] == 0:
                return _SIZE.text(self.bytes, unit)
        return f"{self.bytes}B"


@dataclass(frozen=True, order=True, slots=True)
class Ratio:
    """A share between 0 and 1, such as the packets a path loses."""

    value: float

    def __post_init__(self) -> None:
        # "not (inside)" rather than "outside", so that NaN is refused too.
        if not 0 <= self.value <= 1:
            raise UnitError(f"a ratio is a number from 0 to 1, or from 0% to 100%, not {self.value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read '0.1%' or, the same, '0.001'.

        Raises:
            UnitError: not a number, an unknown unit, or outside 0 to 1.
        """
        expected = "a ratio is a number from 0 to 1, or a percentage, such as '0.1%'"
        number, unit = _split(text, expected)
        if unit not in ("", "%"):
            raise UnitError(f"{text!r} has the unknown unit {unit!r}; {expected}")
        share = number / 100 if unit else number
        if share > 1:
            meant = "" if unit else f"; did you mean '{_plain(number)}%'?"
            raise UnitError(f"{text!r} is above 1; {expected}{meant}")
        return cls(float(share))

    @property
    def percent(self) -> float:
        """In per cent, without the rounding error of a multiplication by 100."""
        return float(Decimal(repr(self.value)) * 100)

    def __str__(self) -> str:
        return _plain(Decimal(repr(self.value)) * 100) + "%"


NO_DELAY = Delay(0)
NO_LOSS = Ratio(0.0)


def _largest(value: int, units: tuple[str, ...], scale: _Scale) -> str:
    """The first of `units`, given from large to small, of which `value` holds at least one."""
    return next(unit for unit in units if value >= scale.units[unit])
