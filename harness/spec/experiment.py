"""An experiment as the user writes it: strict types, and one clear line per mistake."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Never, get_args, get_origin

from pydantic import (
    BaseModel,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticUndefined

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.spec.library import read
from wanbench.harness.spec.refusals import as_written, validated
from wanbench.harness.spec.tables import (
    CommTable,
    ContainersTable,
    FailuresTable,
    GateTable,
    NetworkTable,
    RunTable,
    Table,
    TrainTable,
    VirtualTable,
    WorkloadTable,
)
from wanbench.harness.spec.timeline import ChangeTable
from wanbench.netprofiles import Delay, FileError, Packets, Rate, Ratio, Size, did_you_mean
from wanbench.netprofiles.user_file import flaw, parse_toml

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]


class Spec(Table):
    """A whole experiment file."""

    schema_: int = Field(alias="schema", description="Version of this format: 1.")
    name: Name = Field(description="Name of the experiment; results are stored in results/NAME.")
    description: str = Field(default="", description="One sentence about the question that it answers.")
    workload: WorkloadTable
    network: NetworkTable = NetworkTable()
    comm: CommTable = CommTable()
    algorithms: dict[str, dict[str, Any]] = Field(
        description="One table per algorithm with its parameters, and with `kind` if the key is your own name for it."
    )
    sweep: dict[str, Any] = Field(
        default={},
        description="Axes and their values; all combinations run, with [[sweep.include]], without [[sweep.exclude]].",
    )
    train: TrainTable = TrainTable()
    run: RunTable = RunTable()
    containers: ContainersTable = ContainersTable()
    virtual: VirtualTable = VirtualTable()
    timeline: list[ChangeTable] = Field(default=[])
    failures: FailuresTable = FailuresTable()
    gate: GateTable = GateTable()

    def __new__(cls, *values: Never, **keys: Any) -> Spec:
        """An empty instance, which pydantic fills. Raises: TypeError: it is called by hand."""
        if values or keys:
            got = ", ".join([*map(repr, values), *(f"{key}=..." for key in keys)])
            raise TypeError(f'Spec({got}): call Spec.load("smoke") for a name or a path, or Spec.from_dict({{...}})')
        return super().__new__(cls)

    @field_validator("schema_", mode="before")
    @classmethod
    def _version(cls, version: object) -> object:
        if type(version) is not int or version != 1:  # not true or 1.0, which equal 1
            raise ValueError(f"expected 1, the only version so far, got {as_written(version)}")
        return version

    @model_validator(mode="before")
    @classmethod
    def _algorithms_of_a_command(cls, data: Any) -> Any:
        """Only a command needs no algorithm."""
        workload = data.get("workload")
        return {"algorithms": {}, **data} if isinstance(workload, dict) and "command" in workload else data

    @field_validator("algorithms")
    @classmethod
    def _needed(cls, algorithms: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        workload = info.data.get("workload")
        if not algorithms and workload is not None and workload.command is None:
            raise PydanticCustomError("too_short", "empty", {"min_length": 1})
        return algorithms

    @classmethod
    def load(cls, source: str | Path) -> Spec:
        """Read a TOML file or a built-in experiment by name.

        Raises:
            SpecError: no such file or name, broken TOML, or a value that is not what the key takes.
        """
        return cls.from_toml(read(str(source)), where=str(source))

    @classmethod
    def from_toml(cls, text: str, where: str) -> Spec:
        """Parse TOML text; `where` names it in errors."""
        with as_spec_error(where, FileError):
            return cls.from_dict(parse_toml(text), where)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "spec") -> Spec:
        """Make a spec of plain data, with the keys of a spec file.

        Example:
            >>> workload, algorithms = {"name": "digits-cnn"}, {"ssgd": {}, "dts": {"delay": 4, "period": 4}}
            >>> Spec.from_dict({"schema": 1, "name": "mine", "workload": workload, "algorithms": algorithms})

        Args:
            data: tables as dicts, quantities as text with a unit ("100ms"), as in TOML.
            where: how errors name it.

        Raises:
            SpecError: a key or a value is wrong; one line each.
        """
        if (problem := flaw(data)) is not None:
            raise SpecError(f"{where}: {problem}")
        return validated(cls, dict(data), where)

    def override(self, assignments: Mapping[str, Any], where: str = "--set", drop: Iterable[str] = ()) -> Spec:
        """A copy without the dotted keys `drop`, and with others set. Raises: SpecError."""
        data = self.to_dict()
        for key in drop:
            drop_dotted(data, key)
        for key, value in assignments.items():
            set_dotted(data, key, value, where)
        return Spec.from_dict(data, where)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the keys that are not set."""
        return self.plain()


def set_dotted(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set data["a"]["b"] for key "a.b", and make missing tables. Raises: SpecError."""
    *tables, last = _parts(key)
    for table in tables:
        below = data.setdefault(table, {})
        if not isinstance(below, dict):
            raise SpecError(f"{where}: {key}: {table!r} is a value, not a table")
        data = below
    data[last] = value


def drop_dotted(data: dict[str, Any], key: str) -> None:
    """Remove data["a"]["b"] for key "a.b". Raises: SpecError."""
    *tables, last = _parts(key)
    table: Any = data
    for name in tables:
        table = table.get(name) if isinstance(table, dict) else None
    if not isinstance(table, dict) or last not in table:
        keys = list(_dotted(data))
        ending = [name for name in keys if name.endswith(f".{key}")]
        near = did_you_mean(key, keys, f"did you mean {ending[0]!r}?" if ending else f"keys: {', '.join(keys)}")
        raise SpecError(f"--drop {key}: the spec does not set this key{near}")
    del table[last]


def _parts(key: str) -> list[str]:
    """Tables and key; an axis of the sweep may itself have dots."""
    table, _, axis = key.partition(".")
    return [table, axis] if table == "sweep" and axis else key.split(".")


def _dotted(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `key=value` from the command line. The value is TOML or a bare string. Raises: SpecError."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {text}: expected key=value, e.g. --set run.repeats=1")
    try:
        return key.strip(), parse_toml(f"value = {raw}")["value"]
    except FileError:
        return key.strip(), raw.strip()


@dataclass(frozen=True)
class Key:
    """One key: its dotted name, the type of its value, its default ("" without one), and its meaning."""

    name: str
    takes: str
    default: str
    meaning: str


def described_keys(table: type[BaseModel] = Spec, prefix: str = "") -> Iterator[Key]:
    """All keys of a table in their order, behind a prefix. Raises: KeyError: a key has no description."""
    for name, field in table.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        below = next((t for t in _members(field.annotation) if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if below is not None:
            yield from described_keys(below, f"{dotted}.")
            continue
        text = "required" if field.default is PydanticUndefined else _toml(field.default)
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
    return "table" if origin is dict else _WORDS[annotation]


def _toml(value: object) -> str:
    return "" if value is None else json.dumps(value, default=str)
