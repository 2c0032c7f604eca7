"""Objects that a spec describes: dataclasses whose fields are checked parameters, with a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from operator import ge, gt, le, lt
from typing import Any, ClassVar, NamedTuple

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
        bound: Bound = item.metadata.get("bound", _ANY)
        if not (right_type and bound.holds(value)):
            words = ([] if bound.says_type else [word]) + ([bound.words] if bound.words else [])
            self.refuse(name, value, ", ".join(words))


class Bound(NamedTuple):
    """What a value must be besides its type.

    Attributes:
        holds: whether a value is so. words: how messages say it.
        says_type: whether these words name the type too.
    """

    holds: Callable[[Any], bool]
    words: str
    says_type: bool = False


_ANY = Bound(lambda value: True, "")


def at_least(bound: float) -> Mapping[str, Any]:
    """Metadata for a parameter with a minimum: `delay: int = field(metadata=at_least(0))`."""
    return {"bound": Bound(lambda value: bool(value >= bound), f"{bound:g} or more")}


def between(least: float, most: float, *, open_below: bool = False, open_above: bool = False) -> Mapping[str, Any]:
    """Metadata for a parameter in an interval: `ratio: float = field(metadata=between(0, 1, open_below=True))`."""
    above, below = gt if open_below else ge, lt if open_above else le
    words = f"{'above' if open_below else 'from'} {least:g} to {'below ' if open_above else ''}{most:g}"
    return {"bound": Bound(lambda value: above(value, least) and below(value, most), words)}


def one_of(*allowed: str) -> Mapping[str, Any]:
    """Metadata for a parameter that is one of several words: `form: str = field(metadata=one_of("a", "b"))`."""
    return {"bound": Bound(lambda value: value in allowed, " or ".join(map(repr, allowed)), says_type=True)}


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
