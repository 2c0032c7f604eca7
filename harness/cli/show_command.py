"""wanbench show"""

from __future__ import annotations

import inspect
import json

import click

from harness.cli.list_command import UNIFORM
from harness.errors import SpecError


@click.command("show", short_help="Show one algorithm, workload, profile or experiment.")
@click.argument("kind", type=click.Choice(["algorithm", "workload", "profile", "experiment"]))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(kind: str, name: str, as_json: bool) -> None:
    """Show NAME in full: equations of an algorithm, values of a profile with their sources, the text of an experiment.

    \b
    Example:  wanbench show profile world4
    """
    show = {"algorithm": _algorithm, "workload": _workload, "profile": _profile, "experiment": _experiment}
    try:
        text, data = show[kind](name)
    except ValueError as error:
        raise SpecError(str(error)) from None
    click.echo(json.dumps(data, indent=1) if as_json else text.rstrip())


def _algorithm(name: str) -> tuple[str, object]:
    from workloads.algorithms import registry

    found, parameters = registry.find(name), registry.parameters(name)
    module = inspect.getmodule(found)
    text = f"{inspect.getdoc(found)}\n\n{inspect.getdoc(module) or ''}"
    return text, {"kind": name, "parameters": parameters, "doc": inspect.getdoc(found)}


def _workload(name: str) -> tuple[str, object]:
    from workloads.registry import info

    found = info({"name": name})
    data = {
        "name": found.name,
        "params": found.params,
        "tensors": found.tensors,
        "step_time_s": found.step_time_s,
        "step_cv": found.step_cv,
        "learns": found.learns,
        "dataset": found.dataset,
        "message_bytes": found.message_bytes,
    }
    return "\n".join(f"{key:14} {value}" for key, value in data.items()), data


def _profile(name: str) -> tuple[str, object]:
    from netprofiles import load
    from netprofiles.describe import describe, render

    if name == "uniform":  # has no values but those of a spec
        return f"uniform: {UNIFORM}", {"name": name, "description": UNIFORM}
    profile = load(name)
    return render(profile), describe(profile)


def _experiment(name: str) -> tuple[str, object]:
    from harness.spec import Spec, read

    return read(name), Spec.load(name).to_dict()
