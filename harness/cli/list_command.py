"""wanbench list"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import json_option
from wanbench.netprofiles.path import EFFECTS
from wanbench.workloads.parameters import Parameters, default_of

UNIFORM = (
    f"N sites of one worker, all pairs alike; takes {', '.join(['rtt', 'rate', *(effect.key for effect in EFFECTS)])}"
)
KINDS = ("algorithms", "compressors", "workloads", "profiles", "experiments", "designs", "learning", "keys", "columns")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@json_option
def command(kind: str, as_json: bool) -> None:
    """List the names that a spec can use, the keys that it can have, or the columns of results.

    Parameters of an algorithm or compressor are in parentheses, those with a default in brackets. `learning` has the
    recorded trajectories: the tuned learning rate of every setting, its accuracy, and its difference from ssgd.

    \b
    Example:  wanbench list algorithms
    """
    if kind == "learning":
        _learning(as_json)
        return
    names = LISTS[kind]()
    if as_json:
        click.echo(json.dumps(names, indent=1))
        return
    terminal.show_entries(names)


def _algorithms() -> dict[str, str]:
    from wanbench.workloads.algorithms import registry

    return {kind: _line(registry.find(kind)) for kind in registry.kinds()}


def _compressors() -> dict[str, str]:
    from wanbench.workloads.compression import registry

    return {kind: _line(registry.find(kind)) for kind in registry.kinds()}


def _line(cls: type[Parameters]) -> str:
    """A sentence on its purpose, its parameters (in brackets those with a default), and its source."""
    names = [name if default_of(item) is MISSING else f"[{name}]" for name, item in cls.parameters().items()]
    takes = f" ({', '.join(names)})" if names else ""
    return f"{_first_line(cls)}{takes} [{cls.source}]"


def _workloads() -> dict[str, str]:
    from wanbench.workloads.models.builtins import BUILTINS

    return {name: builtin.description for name, builtin in BUILTINS.items()}


def _profiles() -> dict[str, str]:
    from wanbench.netprofiles import catalog_names, load

    return {"uniform": UNIFORM} | {name: load(name).description for name in catalog_names()}


def _experiments() -> dict[str, str]:
    from wanbench.harness.spec.experiment import Spec
    from wanbench.harness.spec.library import builtin_names

    return {name: Spec.load(name).description for name in builtin_names()}


def _designs() -> dict[str, str]:
    from wanbench.harness.learning.design import DESIGNS, load
    from wanbench.harness.spec.library import builtin_names

    return {name: load(name).description for name in builtin_names(DESIGNS)}


def _learning(as_json: bool) -> None:
    """Print what is recorded: a table, or one object per line of it."""
    from wanbench.harness.learning.recording import recorded
    from wanbench.harness.learning.summary import lines, text

    recordings = list(recorded())
    if as_json:
        click.echo(json.dumps(lines(recordings), indent=1))
        return
    terminal.show(text(recordings))


def _keys() -> dict[str, str]:
    from wanbench.harness.spec.experiment import described_keys

    return {
        key.name: f"({', '.join(filter(None, [key.takes, key.default]))})  {key.meaning}" for key in described_keys()
    }


def _columns() -> dict[str, str]:
    from wanbench.harness.results.columns import COLUMNS

    return {name: column.text for name, column in COLUMNS.items()}


def _first_line(documented: object) -> str:
    import inspect

    return (inspect.getdoc(documented) or "").partition("\n")[0]


LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "algorithms": _algorithms,
    "compressors": _compressors,
    "workloads": _workloads,
    "profiles": _profiles,
    "experiments": _experiments,
    "designs": _designs,
    "keys": _keys,
    "columns": _columns,
}
