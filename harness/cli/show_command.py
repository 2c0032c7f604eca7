"""wanbench show"""

import inspect
import json
import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from wanbench.harness.cli import terminal
from wanbench.harness.cli.completion_command import beginning
from wanbench.harness.cli.list_command import UNIFORM, described
from wanbench.harness.cli.options import json_option
from wanbench.harness.errors import SpecError
from wanbench.harness.spec.library import read
from wanbench.workloads import parameters


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the kind that was typed before."""
    kind = context.params.get("kind")
    return beginning(described(f"{kind}s") if kind else (), incomplete)


@click.command("show")
@click.argument("kind", type=click.Choice(["algorithm", "compressor", "workload", "profile", "experiment", "design"]))
@click.argument("name", shell_complete=_names)
@json_option
def command(kind: str, name: str, as_json: bool) -> None:
    """Show NAME in full: an algorithm's equations, a profile's values with their sources, the text of an experiment.

    \b
    Example:  wanbench show profile world4
    """
    show = {
        "algorithm": _any_algorithm,
        "compressor": _compressor,
        "workload": _workload,
        "profile": _profile,
        "experiment": _experiment,
        "design": _design,
    }
    try:
        text, data = show[kind](name)
    except ValueError as error:
        raise SpecError(str(error)) from None
    if as_json:
        click.echo(json.dumps(data, indent=1))
    elif kind in {"experiment", "design"}:
        click.echo(text.rstrip())  # a TOML file to copy
    else:
        terminal.show(text.rstrip())


def _any_algorithm(name: str) -> tuple[str, object]:
    from wanbench.harness.process.apart import call

    return call(repr(name), _algorithm, name) if ":" in name else _algorithm(name)


def _algorithm(name: str) -> tuple[str, object]:
    from wanbench.workloads.algorithms import registry
    from wanbench.workloads.algorithms.base import Algorithm

    cls = registry.find(name)
    data = parameters.describe(cls) | {"kind": name}
    if cls is not Algorithm:  # the base class trains alone and misses no peer
        data["without_a_peer"], data["when_lost"] = cls.without_a_peer, cls.when_lost
    return _documented(cls, data)


def _compressor(name: str) -> tuple[str, object]:
    from wanbench.workloads.compression import registry

    return _documented(registry.find(name), registry.describe(name))


def _documented(cls: type[parameters.Parameters], data: dict[str, Any]) -> tuple[str, object]:
    """The docstring, a table of the parameters, the source, and the equations of the module."""
    doc, module = (_plain(inspect.getdoc(documented) or "") for documented in (cls, inspect.getmodule(cls)))
    facts = [f"{key.replace('_', ' '):16}{_word(data[key])}" for key in data if key not in {"kind", "parameters"}]
    rows = [
        (name, item["type"], "required" if item["required"] else _word(item["default"]), item["symbol"] or "")
        for name, item in data["parameters"].items()
    ]
    rows = [("parameter", "type", "default", "in the paper"), *rows] if rows else []
    widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else []
    table = [
        "  ".join([*(f"{cell:{w}}" for cell, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    ]
    return "\n\n".join(filter(None, (doc, "\n".join(table), "\n".join(facts), module))), data | {"doc": doc}


def _plain(doc: str) -> str:
    """A docstring without its marks for bold words and for blocks of equations."""
    return re.sub(r"::$", ":", re.sub(r"\*\*(\S.*?)\*\*", r"\1", doc), flags=re.MULTILINE)


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _workload(name: str) -> tuple[str, object]:
    from wanbench.workloads.registry import info

    workload = info({"name": name})
    data = {
        "name": workload.name,
        "params": workload.params,
        "tensors": workload.tensors,
        "step_time_s": workload.step_time_s,
        "step_cv": workload.step_cv,
        "learns": workload.learns,
        "dataset": workload.dataset,
        "message_bytes": workload.message_bytes,
    }
    return "\n".join(f"{key:14} {value}" for key, value in data.items()), data


def _profile(name: str) -> tuple[str, object]:
    from wanbench.netprofiles import load
    from wanbench.netprofiles.describe import describe, render

    if name == "uniform":  # its values come from a spec
        return f"uniform: {UNIFORM}", {"name": name, "description": UNIFORM}
    profile = load(name)
    return render(profile), describe(profile)


def _experiment(name: str) -> tuple[str, object]:
    from wanbench.harness.spec.experiment import Spec

    return read(name), Spec.load(name).to_dict()


def _design(name: str) -> tuple[str, object]:
    from wanbench.harness.learning.design import DESIGNS, load

    return read(name, DESIGNS), load(name).plain()
