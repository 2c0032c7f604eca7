"""The base of all tables of a spec: strict, frozen, without unknown keys, with quantities as types.

A quantity is parsed once, here: "100ms" becomes a `Delay`. The plain data of a table have it as text again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf, PlainSerializer
from pydantic_core import PydanticKnownError

from wanbench.netprofiles import Delay, Rate, Size, UnitError
from wanbench.netprofiles.units import Scale


class Table(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """Plain data with the keys that were given."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)

    def identity(self) -> dict[str, Any]:
        """Plain data without default values, so that a new key does not change the identity of older cells."""
        implied = self._implied()
        return {
            key: value
            for key, value in self.model_dump(by_alias=True, exclude_defaults=True).items()
            if key not in implied or getattr(self, key) != implied[key]
        }

    def _implied(self) -> Mapping[str, object]:
        """Values that hold for keys without a default."""
        return {}


class _Parsed(Protocol):
    scale: ClassVar[Scale]

    @classmethod
    def parse(cls, text: str) -> object: ...


def unit(parse: Callable[[str], object], text: str | None) -> str | None:
    """Check the spelling of a quantity, and return its text. Raises: ValueError."""
    if text is not None:
        _parsed(parse, text)
    return text


def _parsed(parse: Callable[[str], object], value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except UnitError as error:
        raise ValueError(str(error)) from None


def _reader(kind: type[_Parsed]) -> BeforeValidator:
    def read(value: object) -> object:
        if not kind.scale.bare or isinstance(value, str | kind):
            return _parsed(kind.parse, value)
        if type(value) not in (int, float):
            raise PydanticKnownError("float_type")
        return _parsed(kind.parse, str(value))

    return BeforeValidator(read)


def quantity(kind: type[_Parsed]) -> Any:
    """The annotation of a key that takes this kind of quantity."""
    return Annotated[InstanceOf[kind], _reader(kind), _AS_TEXT]  # type: ignore[misc, valid-type]


_AS_TEXT = PlainSerializer(str, return_type=str)
DelayValue = Annotated[InstanceOf[Delay], _reader(Delay), _AS_TEXT]
RateValue = Annotated[InstanceOf[Rate], _reader(Rate), _AS_TEXT]
SizeValue = Annotated[InstanceOf[Size], _reader(Size), _AS_TEXT]
