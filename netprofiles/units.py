"""Delay, Rate, Size, Ratio and Packets: text is parsed once at the edge, and inside no quantity is a bare number."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Self

from wanbench.netprofiles.errors import UnitError, did_you_mean

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*([A-Za-zµ%/]*)", re.ASCII)
_BITS = {f"{prefix}{end}".lower(): f"{prefix}bit" for prefix in ("", "k", "M", "G") for end in ("bit", "bps", "bit/s")}
_BITS_OR_BYTES = re.compile(r"([KMG]?)B(?:PS|/S)?", re.IGNORECASE)
_BYTES = {"": "bytes", "k": "kilobytes", "m": "megabytes", "g": "gigabytes"}


@dataclass(frozen=True)
class Scale:
    """How one kind of quantity is written.

    Attributes:
        units: multiples of the smallest unit.
        plain: suffix of the JSON name, whose value is a bare number of the smallest unit.
        column, unit: suffix of the CSV name, and the unit of its bare numbers. span: the range of such numbers.
        spellings: other spellings of units, in lower case.
    """

    kind: str
    example: str
    whole: str
    units: Mapping[str, int]
    plain: str
    column: str
    unit: str = ""
    span: str = "0 or more"
    spellings: Mapping[str, str] = field(default_factory=dict)

    @property
    def bare(self) -> bool:
        """Whether quantities are written without a unit, so that a file can hold a number."""
        return not self.units and not self.unit

    def expected(self) -> str:
        return f"{self.kind} is a number and one of {', '.join(self.units)}, such as '{self.example}'"

    def parse(self, text: str) -> int:
        """The quantity in the smallest unit, exactly."""
        number, unit = _split(text, self.expected())
        if not unit:
            raise UnitError(f"{text!r} has no unit; {self.expected()}")
        unit = self.spellings.get(unit.lower(), unit)
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

    def largest(self, value: int, units: tuple[str, ...]) -> str:
        """As text in the largest of `units`, given from large to small, that is at most `value`."""
        return self.text(value, next(unit for unit in units if value >= self.units[unit]))


def _split(text: str, expected: str, units: tuple[str, ...] | None = None) -> tuple[Decimal, str]:
    """The number and the unit; `units`: the only ones that are possible. Raises: UnitError."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"{text!r} is not a quantity; {expected}")
    number = Decimal(match[1])
    if number < 0:
        raise UnitError(f"{text!r} is negative; {expected}")
    if units is not None and match[2] not in units:
        raise UnitError(f"{text!r} has the unknown unit {match[2]!r}; {expected}")
    return number, match[2]


def _refuse_bytes(text: str) -> None:
    """Ask what '10GB' means as a rate. Raises: UnitError."""
    quantity = _QUANTITY.fullmatch(text.strip())
    unit = _BITS_OR_BYTES.fullmatch(quantity[2]) if quantity else None
    if quantity is None or unit is None or (quantity[2].lower() in _BITS and "Bps" not in quantity[2]):
        return
    number, prefix = Decimal(quantity[1]), unit[1].lower()
    bit = f"{prefix if prefix == 'k' else prefix.upper()}bit"
    raise UnitError(
        f"{text!r}: bits or bytes? write '{_plain(number)}{bit}', or '{_plain(number * 8)}{bit}' for "
        f"{_plain(number)} {_BYTES[prefix]} per second"
    )


def _plain(number: Decimal) -> str:
    """The decimal without an exponent and without trailing zeros."""
    return format(number.normalize(), "f")


class _Counted:
    """A whole number of the smallest unit, never negative. A subclass holds it in its only field."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]
    scale: ClassVar[Scale]

    def __init__(self, count: int) -> None: ...

    def __post_init__(self) -> None:
        self.scale.check(self.plain)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a number and its unit, such as '80ms', '100Mbit' or '25MiB'.

        Raises:
            UnitError: no unit, an unknown one, a negative value, or a fraction of the smallest unit.
        """
        return cls(cls.scale.parse(text))

    @property
    def plain(self) -> int:
        """In the smallest unit."""
        count: int = getattr(self, self.__match_args__[0])
        return count

    @property
    def shown(self) -> float | str:
        """As written to a CSV file."""
        return self.plain / self.scale.units[self.scale.unit] if self.scale.unit else str(self)


@dataclass(frozen=True, order=True, slots=True)
class Delay(_Counted):
    """A span of time, in whole nanoseconds, never negative."""

    scale = Scale(
        "a delay", "80ms", "ns", {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}, "_ns", "_ms", "ms"
    )

    ns: int

    @classmethod
    def from_ms(cls, ms: float) -> Self:
        """The delay nearest to `ms` milliseconds. Raises UnitError if negative or not finite."""
        return cls(cls.scale.rounded(ms * 1e6))

    @property
    def ms(self) -> float:
        """In milliseconds."""
        return self.ns / 1e6

    @property
    def seconds(self) -> float:
        """In seconds."""
        return self.ns / 1e9

    def __str__(self) -> str:
        return self.scale.largest(self.ns, ("s", "ms", "us", "ns")) if self.ns else "0ms"


@dataclass(frozen=True, order=True, slots=True)
class Rate(_Counted):
    """A bit rate, in whole bits per second, above zero. An unlimited rate is None, not a Rate."""

    scale = Scale(
        "a rate",
        "10Gbit",
        "bit/s",
        {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9},
        "_bps",
        "_mbps",
        "Mbit",
        "above 0",
        _BITS,
    )

    bps: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a rate in bits per second, such as '10Gbit' or '100Mbps'.

        Raises:
            UnitError: as for any quantity, and where the unit may mean bytes.
        """
        _refuse_bytes(text)
        return cls(cls.scale.parse(text))

    def __post_init__(self) -> None:
        self.scale.check(self.bps)
        if self.bps == 0:
            raise UnitError("a rate must be above zero; remove it if nothing limits it")

    @classmethod
    def from_mbit(cls, mbit: float) -> Self:
        """The rate nearest to `mbit` Mbit/s. Raises UnitError if not above zero or not finite."""
        return cls(cls.scale.rounded(mbit * 1e6))

    @property
    def mbit(self) -> float:
        """In Mbit/s."""
        return self.bps / 1e6

    @property
    def bytes_per_s(self) -> float:
        """In bytes per second."""
        return self.bps / 8

    def __str__(self) -> str:
        return self.scale.largest(self.bps, ("Gbit", "Mbit", "kbit", "bit"))


@dataclass(frozen=True, order=True, slots=True)
class Size(_Counted):
    """A number of bytes, never negative."""

    scale = Scale(
        "a size",
        "25MiB",
        "bytes",
        {"B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30},
        "_bytes",
        "",
    )

    bytes: int

    def __str__(self) -> str:
        for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
            if self.bytes and self.bytes % self.scale.units[unit] == 0:
                return self.scale.text(self.bytes, unit)
        return f"{self.bytes}B"


class _Number:
    """A number that can be written without a unit. A subclass holds it in `value`."""

    __slots__ = ()
    scale: ClassVar[Scale]
    value: float

    @property
    def plain(self) -> float:
        """As a number."""
        return self.value

    @property
    def shown(self) -> float:
        """As written to a CSV file."""
        return self.value

    def __str__(self) -> str:
        return _plain(Decimal(repr(self.value)))


@dataclass(frozen=True, order=True, slots=True)
class Ratio(_Number):
    """A share between 0 and 1, such as the share of packets that a path loses."""

    scale = Scale("a ratio", "0.1%", "", {}, "", "_pct", "%", "0 to 100")

    value: float

    def __post_init__(self) -> None:
        # "not (inside)" instead of "outside" also refuses NaN.
        if not 0 <= self.value <= 1:
            raise UnitError(f"a ratio is a number from 0 to 1, or from 0% to 100%, not {self.value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read '0.1%', or '0.001' for the same value.

        Raises:
            UnitError: not a number, an unknown unit, or outside 0 to 1.
        """
        expected = "a ratio is a number from 0 to 1, or a percentage, such as '0.1%'"
        number, unit = _split(text, expected, ("", "%"))
        share = number / 100 if unit else number
        if share > 1:
            meant = "" if unit else f"; did you mean '{_plain(number)}%'?"
            raise UnitError(f"{text!r} is above 1; {expected}{meant}")
        return cls(float(share))

    @property
    def percent(self) -> float:
        """In per cent, without the rounding error of a multiplication by 100."""
        return float(Decimal(repr(self.value)) * 100)

    shown = percent

    def __str__(self) -> str:
        return _plain(Decimal(repr(self.value)) * 100) + "%"


@dataclass(frozen=True, order=True, slots=True)
class Packets(_Number):
    """A mean number of packets in a row: 1 or more, or 0 if nothing counts them. It has no unit."""

    scale = Scale("a number of packets", "5", "", {}, "", "", span="0, or 1 or more")

    value: float

    def __post_init__(self) -> None:
        if not (self.value == 0 or 1 <= self.value < math.inf):
            raise UnitError(f"a number of packets is 1 or more, or 0 for none, not {self.value:g}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a number, such as '5' or '2.5'.

        Raises:
            UnitError: not a number, with a unit, or below 1 and not 0.
        """
        expected = "a number of packets is 1 or more, or 0 for none, such as '5'"
        number, _ = _split(text, expected, ("",))
        return cls(float(number))


Quantity = Delay | Rate | Ratio | Size | Packets

NO_DELAY = Delay(0)
NO_LOSS = Ratio(0.0)
