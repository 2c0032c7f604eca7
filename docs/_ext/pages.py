"""The generated parts of the reference, as Markdown: all from what the code says of itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from commands import Command, Paragraph, commands, preface
from markdown import attributes, docstring, escaped, fenced, table

from harness import columns, spec_keys
from harness.spec import Spec, builtin_names, read
from netprofiles import catalog_names, load
from netprofiles.describe import render
from workloads import parameters
from workloads.algorithms import registry as algorithms
from workloads.builtins import BUILTINS
from workloads.compression import registry as compressors

_LONG = 60  # lines of a profile


def of_commands() -> str:
    """All commands."""
    return "\n".join([*map(_paragraph, preface()), *map(_command, commands())])


def _command(command: Command) -> str:
    options = [(f"`{spelling}`", escaped(meaning)) for spelling, meaning in command.options]
    return "\n".join(
        [
            f"## {command.name}\n",
            fenced(command.usage),
            *map(_paragraph, command.paragraphs),
            fenced("\n".join(f"$ {example}" for example in command.examples), "console"),
            table(("option", "meaning"), options) if options else "",
        ]
    )


def _paragraph(paragraph: Paragraph) -> str:
    return fenced(paragraph.text) if paragraph.verbatim else f"{escaped(paragraph.text)}\n"


def of_keys() -> str:
    """All keys of a spec, a table for each of its tables."""
    by_table: dict[str, list[spec_keys.Key]] = {}
    for key in spec_keys.described():
        by_table.setdefault(key.name.rpartition(".")[0], []).append(key)
    parts = []
    for name, keys in by_table.items():
        parts.append(f"## {_heading(name)}\n")
        rows = [
            (f"`{key.name.rpartition('.')[2]}`", _code(key.takes), _code(key.default), escaped(key.meaning))
            for key in keys
        ]
        parts.append(table(("key", "takes", "default", "meaning"), rows))
    return "\n".join(parts)


def _heading(name: str) -> str:
    if not name:
        return "At the top"
    return "[[gate.require]]" if name == "gate.require" else f"[{name}]"


def _code(text: str) -> str:
    return " or ".join(f"`{part}`" if '"' in part or part in {"true", "false"} else part for part in text.split(" or "))


def of_columns() -> str:
    """All columns of the results."""
    rows = [(f"`{name}`", escaped(meaning)) for name, meaning in columns.MEANINGS.items()]
    return table(("column", "meaning"), rows)


def of_algorithms() -> str:
    """All algorithms: equations, parameters with the papers' symbols, sources."""
    symbols = [
        (f"[`{kind}`](#{kind})", escaped(_symbol(found, "delay")), escaped(_symbol(found, "period")), found.source)
        for kind in algorithms.kinds()
        for found in [algorithms.find(kind)]
    ]
    head = table(("algorithm", "delay D", "period p", "source"), [(a, b, c, escaped(d)) for a, b, c, d in symbols])
    return "\n".join([head, *(_documented(kind, algorithms.find(kind)) for kind in algorithms.kinds())])


def _symbol(found: type[parameters.Parameters], name: str) -> str:
    """What the source calls a parameter; "0" and "1" where the algorithm has none, and its name where it has none."""
    if name not in found.parameters():
        return ""
    return found.symbols.get(name, name)


def of_compressors() -> str:
    """All compressors."""
    return "\n".join(_documented(kind, compressors.find(kind)) for kind in compressors.kinds())


def _documented(kind: str, found: type[parameters.Parameters]) -> str:
    doc, module = inspect.getdoc(found) or "", inspect.getdoc(inspect.getmodule(found)) or ""
    described, meanings = parameters.describe(found), attributes(doc)
    rows = []
    for name, item in _items(described["parameters"]):
        default = "required" if item["required"] else f"`{json.dumps(item['default'])}`"
        rows.append(
            (f"`{name}`", item["type"], default, escaped(item["symbol"] or ""), escaped(meanings.get(name, "")))
        )
    more = docstring(module) if len(module.splitlines()) > 1 else ""
    return "\n".join(
        [
            f"## {kind}\n",
            docstring(doc) + "\n",
            table(("parameter", "type", "default", "in the paper", "meaning"), rows) if rows else "",
            f"Source: {escaped(found.source)}.\n",
            f"{more}\n" if more else "",
        ]
    )


def _items(described: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return described.items()  # type: ignore[no-any-return]


def of_experiments() -> str:
    """Built-in experiments, with their text."""
    parts = []
    for name in builtin_names():
        parts += [f"## {name}\n", f"{escaped(Spec.load(name).description)}\n", fenced(read(name).rstrip(), "toml")]
    return "\n".join(parts)


def of_workloads() -> str:
    """Built-in workloads."""
    return table(("workload", "what it is"), [(f"`{n}`", escaped(b.description)) for n, b in BUILTINS.items()])


def of_profiles() -> str:
    """Profiles of the catalog, with all values; of those with many sites the sites alone."""
    parts = []
    for name in catalog_names():
        profile = load(name)
        text = render(profile).rstrip()
        shown = (
            fenced(text) if len(text.splitlines()) < _LONG else f"`wanbench show profile {name}` lists its values.\n"
        )
        parts += [f"## {name}\n", f"{escaped(profile.description)}\n", shown]
    return "\n".join(parts)


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": of_commands,
    "keys": of_keys,
    "columns": of_columns,
    "algorithms": of_algorithms,
    "compressors": of_compressors,
    "experiments": of_experiments,
    "workloads": of_workloads,
    "profiles": of_profiles,
}


def fill(text: str) -> str:
    """A page with its generated parts in place of their marks. Raises: KeyError, for a mark that nothing fills."""
    lines = [_filled(line) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _filled(line: str) -> str:
    mark = line.removeprefix("<!-- generated: ").removesuffix(" -->")
    return PARTS[mark]() if line.startswith("<!-- generated: ") else line


def marks(folder: Path) -> Iterator[str]:
    """The names of all marks in the pages of a folder."""
    for page in sorted(folder.rglob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("<!-- generated: "):
                yield line.removeprefix("<!-- generated: ").removesuffix(" -->")
