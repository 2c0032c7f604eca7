"""wanbench list"""

import importlib
import inspect
import json
from dataclasses import MISSING

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import json_option
from wanbench.harness.spec.library import builtin_names
from wanbench.netprofiles.path import UNIFORM_KEYS
from wanbench.workloads.parameters import Parameters, default_of

UNIFORM = f"N sites of one worker, all pairs alike; takes {', '.join(UNIFORM_KEYS)}"
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
    elif as_json:
        click.echo(json.dumps(described(kind), indent=1))
    else:
        names = described(kind)
        indent = max(map(len, names)) + 2
        for name, text in names.items():
            terminal.show_entry(f"{name:{indent}}", text)


def described(kind: str) -> dict[str, str]:
    """The names of a kind, each with a line about it."""
    match kind:
        case "algorithms" | "compressors":
            rooms = {"algorithms": "algorithms", "compressors": "compression"}
            registry = importlib.import_module(f"wanbench.workloads.{rooms[kind]}.registry")
            return {name: _line(registry.find(name)) for name in registry.kinds()}
        case "workloads":
            from wanbench.workloads.models.builtins import BUILTINS

            return {name: builtin.description for name, builtin in BUILTINS.items()}
        case "profiles":
            from wanbench.netprofiles import catalog_names, load

            return {"uniform": UNIFORM} | {name: load(name).description for name in catalog_names()}
        case "experiments":
            from wanbench.harness.spec.experiment import Spec

            return {name: Spec.load(name).description for name in builtin_names()}
        case "designs":
            from wanbench.harness.learning import design

            return {name: design.load(name).description for name in builtin_names(design.DESIGNS)}
        case "keys":
            from wanbench.harness.spec.experiment import described_keys

            return {
                key.name: f"({', '.join(filter(None, [key.takes, key.default]))})  {key.meaning}"
                for key in described_keys()
            }
        case _:
            from wanbench.harness.results.columns import COLUMNS

            return {name: column.text for name, column in COLUMNS.items()}


def _line(cls: type[Parameters]) -> str:
    """A sentence on its purpose, its parameters (in brackets those with a default), and its source."""
    purpose = (inspect.getdoc(cls) or "").partition("\n")[0]
    names = [name if default_of(item) is MISSING else f"[{name}]" for name, item in cls.parameters().items()]
    return " ".join([purpose, *([f"({', '.join(names)})"] if names else []), f"[{cls.source}]"])


def _learning(as_json: bool) -> None:
    """Print what is recorded: a table, or one object per line of it."""
    from wanbench.harness.learning.recording import recorded
    from wanbench.harness.learning.summary import lines, text

    recordings = list(recorded())
    if as_json:
        click.echo(json.dumps(lines(recordings), indent=1))
    else:
        terminal.show(text(recordings))
