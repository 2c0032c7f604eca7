"""A description of every key of a spec, for `wanbench list keys` and the reference in docs/."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import Delay, Packets, Rate, Ratio, Size


@dataclass(frozen=True)
class Key:
    """One key: its dotted name, the type of its value, its default ("" without one), and its meaning."""

    name: str
    takes: str
    default: str
    meaning: str


def described() -> Iterator[Key]:
    """All keys in the order of the spec's tables. Raises: KeyError: a key has no description."""
    return _keys(Spec, "")


def _keys(table: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in table.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        below = next((t for t in _members(field.annotation) if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if below is not None:
            yield from _keys(below, f"{dotted}.")
            continue
        default = field.default
        text = "required" if default is PydanticUndefined else _toml(default)
        if not field.description:
            raise KeyError(dotted)
        yield Key(dotted, takes(field.annotation), text, field.description)


def _members(annotation: Any) -> list[Any]:
    """A type, and all types inside it."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return [annotation, *(inner for part in parts for inner in _members(part))]


_WORDS = {int: "whole number", float: "number", Packets: "number", bool: "true or false"} | dict.fromkeys(
    (str, Delay, Rate, Ratio, Size), "string"
)


def takes(annotation: Any) -> str:
    """A type in the words of TOML."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return takes(parts[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(takes(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return " or ".join(_toml(part) for part in parts)
    if origin is list:
        return f"list of {takes(parts[0])}s"
    if origin is dict:
        return "table"
    return _WORDS[annotation]


def _toml(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | list | dict) else f'"{value}"'
