"""Objects that a spec describes: dataclasses whose fields are checked parameters, with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

from wanbench.netprofiles.errors import did_you_mean


@dataclass
class Parameters:
    """A dataclass of numbers, strings and booleans, checked against their annotations.

    Attributes:
        noun: what messages call it, such as "algorithm".
        kind: its name in a spec; by default the class name in lower case.
        error: the exception for a wrong parameter.
        source: authors, title, year.
        symbols: the source's symbol for each parameter: {"delay": "t"}.
        spelt: the parameters whose whole name is in the label.
    """

    noun: ClassVar[str] = "object"
    kind: ClassVar[str] = "object"
    error: ClassVar[type[ValueError]] = ValueError
    source: ClassVar[str] = ""
    symbols: ClassVar[Mapping[str, str]] = {}
    spelt: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = cls.__name__.lower()

    def __post_init__(self) -> None:
        """Check the parameters; a subclass that adds rules calls this first.

        Raises:
            ValueError: of type `error`: a parameter has the wrong type or is out of bounds.
        """
        for name, item in self.parameters().items():
            self._check(name, getattr(self, name), item)

    @classmethod
    def parameters(cls) -> dict[str, Field[Any]]:
        """Return the dataclass fields that are parameters, by name."""
        return {item.name: item for item in fields(cls) if item.init}

    def params(self) -> dict[str, object]:
        """Return the values of the parameters, by name."""
        return {name: getattr(self, name) for name in self.parameters()}

    @property
    def label(self) -> str:
        """A short name with every parameter that is not at its default: `dts-d20-p4`.

        A parameter appears as its initial, unless an earlier one has that, so a further parameter changes no label. A
        true boolean appears as its name alone.
        """
        words, first = [self.kind], {name[0]: name for name in reversed(self.parameters())}
        for name, item in self.parameters().items():
            value = getattr(self, name)
            if value != default_of(item):
                spelt = value is True or name in self.spelt or first[name[0]] != name
                words.append(self._word(name if spelt else name[0], value))
        return "-".join(words)

    def _word(self, name: str, value: object) -> str:
        return f"{name}{value}" if value is not True else name

    def refuse(self, name: str, value: object, expected: str) -> None:
        """Raise this object's error for a parameter that is not as expected."""
        raise self.error(f"{self.noun} '{self.kind}': {name} = {value!r}; expected {expected}")

    def _check(self, name: str, value: object, item: Field[Any]) -> None:
        typename = typename_of(item)
        if typename not in _TYPES:
            return
        types, word = _TYPES[typename]
        right_type = isinstance(value, types) and (typename == "bool" or not isinstance(value, bool))
        bound: Interval | Choice | None = item.metadata.get("bound") or item.metadata.get("choice")
        if not (right_type and (bound is None or bound.holds(value))):
            words = [*([] if isinstance(bound, Choice) else [word]), *([] if bound is None else [bound.words])]
            self.refuse(name, value, ", ".join(words))


@dataclass(frozen=True)
class Interval:
    """Numbers from `least` (excluded if `open_below`) to `most` (excluded if `open_above`)."""

    least: float
    most: float = float("inf")
    open_below: bool = False
    open_above: bool = False

    def holds(self, value: Any) -> bool:
        """True for a number in the interval."""
        above = value > self.least if self.open_below else value >= self.least
        return bool(
            above and (value < self.most if self.open_above and self.most < float("inf") else value <= self.most)
        )

    @property
    def words(self) -> str:
        """The words for error messages."""
        if self.most == float("inf"):
            return f"above {self.least:g}" if self.open_below else f"{self.least:g} or more"
        low = f"above {self.least:g}" if self.open_below else f"from {self.least:g}"
        return f"{low} to {'below ' if self.open_above else ''}{self.most:g}"


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    allowed: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """True for one of them."""
        return value in self.allowed

    @property
    def words(self) -> str:
        """The words for error messages."""
        return " or ".join(map(repr, self.allowed))


def at_least(bound: float) -> Mapping[str, Any]:
    """Metadata for a parameter with a minimum: `delay: int = field(metadata=at_least(0))`."""
    return {"bound": Interval(bound)}


def between(least: float, most: float, *, open_below: bool = False, open_above: bool = False) -> Mapping[str, Any]:
    """Metadata for a parameter in an interval: `ratio: float = field(metadata=between(0, 1, open_below=True))`."""
    return {"bound": Interval(least, most, open_below, open_above)}


def one_of(*allowed: str) -> Mapping[str, Any]:
    """Metadata for a parameter that is one of several words: `form: str = field(metadata=one_of("a", "b"))`."""
    return {"choice": Choice(allowed)}


def default_of(item: Field[Any]) -> object:
    """Return the default of a field, or MISSING."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def unknown_or_missing(cls: type[Parameters], params: Mapping[str, object]) -> None:
    """Check the names of parameters. Raises: ValueError: of type `cls.error`: one is unknown or missing."""
    items = cls.parameters()
    for name in params:
        if name not in items:
            near, valid = did_you_mean(name, items), ", ".join(items) or "none"
            raise cls.error(f"{cls.noun} '{cls.kind}' has no parameter '{name}'{near} (it takes {valid})")
    for name, item in items.items():
        if default_of(item) is MISSING and name not in params:
            raise cls.error(f"{cls.noun} '{cls.kind}' needs parameter '{name}' ({typename_of(item)})")


def describe(cls: type[Parameters]) -> dict[str, object]:
    """Return kind, source, and the parameters with type, default and the source's symbol, as plain data."""
    items = {
        name: {
            "type": typename_of(item),
            "required": default_of(item) is MISSING,
            "default": None if default_of(item) is MISSING else default_of(item),
            "symbol": cls.symbols.get(name),
        }
        for name, item in cls.parameters().items()
    }
    return {"kind": cls.kind, "source": cls.source, "parameters": items}


def typename_of(item: Field[Any]) -> str:
    """Return the type of a parameter as written: "int"."""
    return item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a string"),
    "bool": ((bool,), "true or false"),
}
