"""Validation errors of pydantic as one line per key."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from wanbench.harness.errors import SpecError
from wanbench.netprofiles import did_you_mean

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "string_type": "a string in quotes",
    "is_instance_of": "a string in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} entry",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
}
_HOW = {
    "schema": "; add schema = 1",
    "name": '; add name = "my-experiment"',
    "workload": '; add [workload] with name = "resnet50-v100"',
    "algorithms": "; add [algorithms] with ssgd = {}",
}
_SHAPES = {
    "[0-9]+(-": 'processors, such as "0" or "0-1,3"',
    "steps": 'a count of steps, such as "20 steps"',
    "A-Z": "letters, digits, '.', '_' and '-' ('-' not first)",
}


def validated(model: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """Make a table of plain data. Raises: SpecError: a key or a value is wrong; one line each."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise SpecError("\n".join(_explained(error, model, data, where))) from None


def _explained(error: ValidationError, model: type[BaseModel], data: Mapping[str, Any], where: str) -> list[str]:
    """One line per wrong key: file, dotted key, what was expected, near miss."""
    by_key: dict[tuple[str | int, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        by_key.setdefault(_location(item, data), []).append(item)
    # If a key takes a table or a word, name the wrong entry of the table, not the whole table.
    inner = [key for key in by_key if not any(other != key and other[: len(key)] == key for other in by_key)]
    return [f"{where}: {'.'.join(map(str, key)) or 'the file'}: {_explain(by_key[key], key, model)}" for key in inner]


def _location(item: Any, data: Any) -> tuple[str | int, ...]:
    """The place of a mistake in the file, without the names that pydantic adds for members of a union."""
    location: list[str | int] = []
    for part in item["loc"]:
        if part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int):
            data = data[part]
        elif item["type"] != "missing":
            continue
        location.append(part)
    return tuple(location)


def _explain(items: list[Any], location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    kind, value = items[0]["type"], items[0].get("input")
    if kind == "extra_forbidden":
        keys = _known_keys(model, location[:-1])
        return f"unknown key{did_you_mean(str(location[-1]), keys, 'known keys: ' + ', '.join(keys))}"
    if kind == "missing":
        return f"this key is required{_HOW.get(str(location[-1]), '') if len(location) == 1 else ''}"
    if kind == "value_error":
        return str(items[0]["msg"]).removeprefix("Value error, ")
    words = [word for item in items for word in re.findall("'([^']*)'", item.get("ctx", {}).get("expected", ""))]
    return f"expected {' or '.join(map(_expected, items))}, got {as_written(value)}{did_you_mean(str(value), words)}"


def _expected(item: Any) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return next(words for part, words in _SHAPES.items() if part in context["pattern"])
    return _EXPECTED[kind].format(**context) if kind in _EXPECTED else str(item["msg"])


def as_written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _known_keys(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """The keys of the table at a location in `model`."""
    for part in location:
        field = model.model_fields.get(str(part))
        candidates = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model)
    return sorted(field.alias or name for name, field in model.model_fields.items())
