"""The generated parts of the reference as Markdown, from help texts, docstrings and catalogues in the code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from wanbench.harness.cli.init_command import STARTER
from wanbench.harness.results import columns
from wanbench.harness.spec import experiment
from wanbench.harness.spec.axes import SHORT_AXES
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.library import builtin_names, read
from wanbench.netprofiles import catalog_names, load
from wanbench.netprofiles.describe import render
from wanbench.workloads import parameters
from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.algorithms.base import Algorithm, Replica
from wanbench.workloads.comm.base import BackgroundComm, Comm, LossyComm, Vector, Work
from wanbench.workloads.compression import registry as compressors
from wanbench.workloads.models.builtins import BUILTINS
from wanbench_docs.claims import names as claimed
from wanbench_docs.claims import of_claims, of_recordings, of_verdicts
from wanbench_docs.commands import Command, Paragraph, commands, preface
from wanbench_docs.costs import shown
from wanbench_docs.curves import of_curve
from wanbench_docs.learned import of_learned, recorded
from wanbench_docs.markdown import attributes, docstring, escaped, fenced, markdown
from wanbench_docs.published import of_published
from wanbench_docs.weights import of_weights

_LONG = 60  # lines of a profile
_KINDS = ("string", "whole number", "number", "true", "false", "table", "list of strings")


def of_commands() -> str:
    """Return all commands."""
    return "\n".join([*map(_paragraph, preface()), *map(_command, commands())])


def _command(command: Command) -> str:
    options = [(f"`{spelling}`", escaped(meaning)) for spelling, meaning in command.options]
    return "\n".join(
        [
            f"## {command.name}\n",
            fenced(command.usage),
            *map(_paragraph, command.paragraphs),
            fenced("\n".join(f"$ {example}" for example in command.examples), "console"),
            markdown(("option", "meaning"), options) if options else "",
        ]
    )


def _paragraph(paragraph: Paragraph) -> str:
    return fenced(paragraph.text) if paragraph.verbatim else f"{escaped(paragraph.text)}\n"


def of_keys() -> str:
    """Return all keys of a spec, one table for each of its tables."""
    by_table: dict[str, list[experiment.Key]] = {}
    for key in experiment.described_keys():
        by_table.setdefault(key.name.rpartition(".")[0], []).append(key)
    parts = []
    for name, below in by_table.items():
        parts.append(f"## {_heading(name)}\n")
        rows = [(f"`{key.name.rpartition('.')[2]}`", f"{escaped(key.meaning)} {_takes(key)}") for key in below]
        parts.append(markdown(("key", "meaning"), rows))
    return "\n".join(parts)


def _takes(key: experiment.Key) -> str:
    """Return the values and the default of a key. They share a column, because phones are narrow."""
    default = {"": "", "required": "; required"}.get(key.default, f"; default {_code(key.default)}")
    return f"*Takes* {_code(key.takes)}{default}."


def _heading(name: str) -> str:
    if not name:
        return "At the top"
    return f"[[{name}]]" if name in ("gate.require", "timeline") else f"[{name}]"


def _code(text: str) -> str:
    return " or ".join(part if part in _KINDS else f"`{part}`" for part in text.split(" or "))


def of_columns() -> str:
    """Return all columns of the results."""
    rows = [(f"`{name}`", escaped(column.text)) for name, column in columns.COLUMNS.items()]
    return markdown(("column", "meaning"), rows)


def of_algorithms() -> str:
    """Return all algorithms with links to their pages and the papers' symbols."""
    rows = [
        (f"[`{kind}`](algorithms/{kind}.md)", escaped(_symbol(found, "delay")), escaped(_symbol(found, "period")))
        for kind in algorithms.kinds()
        for found in [algorithms.find(kind)]
    ]
    return markdown(("algorithm", "delay D", "period p"), rows)


def of_algorithm(kind: str) -> str:
    """Return the parameters of an algorithm, its behaviour without a peer, and the details in its module."""
    found = algorithms.find(kind)
    doc, module = inspect.getdoc(found) or "", inspect.getdoc(inspect.getmodule(found)) or ""
    if found is Algorithm:  # its texts are for authors of algorithms
        return "It has none.\n"
    parts = [_parameters(found, attributes(doc)), f"When a peer is gone, {escaped(found.without_a_peer)}.\n"]
    parts.append(f"When a worker is lost, {escaped(found.when_lost)}.\n")
    if len(module.splitlines()) > 1:
        parts += ["### Details\n", docstring(module) + "\n"]
    return "\n".join(parts)


def _symbol(found: type[parameters.Parameters], name: str) -> str:
    """Return the source's symbol for a parameter, or nothing if the algorithm does not have it."""
    if name not in found.parameters():
        return ""
    return found.symbols.get(name, name)


def of_comm() -> str:
    """Return what an algorithm can use: its replica, its peers, and vectors."""
    return "\n".join(map(_interface, (Replica, Comm, Work, Vector, BackgroundComm, LossyComm)))


def _interface(cls: type) -> str:
    """A class: its docstring, and its attributes, or each method that it adds."""
    doc = inspect.getdoc(cls) or ""
    if given := attributes(doc):
        rows = [(f"`{name}`", escaped(meaning)) for name, meaning in given.items()]
        return f"## {cls.__name__}\n\n{markdown(('attribute', 'meaning'), rows)}"
    methods = [item for name, item in vars(cls).items() if inspect.isfunction(item) and name in _public(cls)]
    rows = [(f"`{_call(method)}`", escaped(" ".join((inspect.getdoc(method) or "").split()))) for method in methods]
    return f"## {cls.__name__}\n\n{docstring(doc)}\n\n{markdown(('method', 'what it does'), rows)}"


def _public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_") or name == "__getitem__"]


def _call(method: Callable[..., Any]) -> str:
    """A method as it is called: `send(vector, dst)`."""
    _, *names = inspect.signature(method).parameters
    return f"vector[{names[0]}]" if method.__name__ == "__getitem__" else f"{method.__name__}({', '.join(names)})"


def of_compressors() -> str:
    """Return all compressors."""
    return "\n".join(_documented(kind, compressors.find(kind)) for kind in compressors.kinds())


def _documented(kind: str, found: type[parameters.Parameters]) -> str:
    doc, module = inspect.getdoc(found) or "", inspect.getdoc(inspect.getmodule(found)) or ""
    more = docstring(module) if len(module.splitlines()) > 1 else ""
    return "\n".join(
        [
            f"## {kind}\n",
            docstring(doc) + "\n",
            _parameters(found, attributes(doc)),
            f"Source: {escaped(found.source)}.\n",
            f"{more}\n" if more else "",
        ]
    )


def _parameters(found: type[parameters.Parameters], meanings: Mapping[str, str]) -> str:
    rows = []
    for name, item in _items(parameters.describe(found)["parameters"]):
        default = "required" if item["required"] else f"`{json.dumps(item['default'])}`"
        symbol, meaning = escaped(item["symbol"] or ""), escaped(meanings.get(name, ""))
        rows.append((f"`{name}`", item["type"], default, symbol, meaning))
    header = ("parameter", "type", "default", "in the paper", "meaning")
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    return markdown([header[i] for i in kept], [[row[i] for i in kept] for row in rows]) if rows else ""


def _items(described: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return described.items()  # type: ignore[no-any-return]


def of_experiments() -> str:
    """Return the built-in experiments with their specs."""
    parts = []
    for name in builtin_names():
        parts += [f"## {name}\n", f"{escaped(Spec.load(name).description)}\n", fenced(read(name).rstrip(), "toml")]
    return "\n".join(parts)


def of_workloads() -> str:
    """Return the built-in workloads."""
    return markdown(("workload", "description"), [(f"`{n}`", escaped(b.description)) for n, b in BUILTINS.items()])


def of_profiles() -> str:
    """Return the profiles of the catalog, with all values if they are short."""
    parts = []
    for name in catalog_names():
        profile = load(name)
        text = render(profile).rstrip()
        shown = (
            fenced(text) if len(text.splitlines()) < _LONG else f"`wanbench show profile {name}` lists its values.\n"
        )
        parts += [f"## {name}\n", f"{escaped(profile.description)}\n", shown]
    return "\n".join(parts)


def of_axes() -> str:
    """Return the short names of axes with their keys."""
    return markdown(("axis", "key"), [(f"`{axis}`", f"`{key}`") for axis, key in SHORT_AXES.items()])


def of_starter() -> str:
    """Return the spec that `wanbench init` writes."""
    text = STARTER.read_text(encoding="utf-8").replace("@NAME@", "my-network").replace("@FILE@", "my-network.toml")
    return fenced(text.rstrip(), "toml")


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": of_commands,
    "keys": of_keys,
    "axes": of_axes,
    "starter": of_starter,
    "columns": of_columns,
    "algorithms": of_algorithms,
    "compressors": of_compressors,
    "experiments": of_experiments,
    "workloads": of_workloads,
    "profiles": of_profiles,
    "recordings": of_recordings,
    "verdicts": of_verdicts,
    "weights": of_weights,
    "comm": of_comm,
    "published": of_published,
    **{f"algorithm {kind}": partial(of_algorithm, kind) for kind in algorithms.kinds()},
    **{f"curve {kind}": partial(of_curve, kind) for kind in algorithms.kinds()},
    **{f"claims {name}": partial(of_claims, name) for name in claimed()},
    **{f"learned {name}": partial(of_learned, name) for name in recorded()},
}


def fill(text: str) -> str:
    """Replace the marks of a page by their generated parts. Raises: KeyError, for an unknown mark."""
    lines = [_filled(line) for line in shown(text).splitlines()]
    return "\n".join(lines) + "\n"


def _filled(line: str) -> str:
    mark = line.removeprefix("<!-- generated: ").removesuffix(" -->")
    return PARTS[mark]() if line.startswith("<!-- generated: ") else line


def marks(folder: Path) -> Iterator[str]:
    """Yield the names of all marks in the pages of a folder."""
    for page in sorted(folder.rglob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("<!-- generated: "):
                yield line.removeprefix("<!-- generated: ").removesuffix(" -->")
