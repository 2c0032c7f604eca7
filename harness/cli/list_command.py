"""wanbench list"""

from __future__ import annotations

import json
from collections.abc import Callable

import click

UNIFORM = "N sites of one worker, all pairs alike; takes rtt, rate, jitter, loss"
KINDS = ("algorithms", "workloads", "profiles", "experiments")


@click.command("list", short_help="List algorithms, workloads, profiles or experiments.")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(kind: str, as_json: bool) -> None:
    """List what a spec can name.

    \b
    Example:  wanbench list algorithms
    """
    listing: dict[str, Callable[[], dict[str, str]]] = {
        "algorithms": _algorithms,
        "workloads": _workloads,
        "profiles": _profiles,
        "experiments": _experiments,
    }
    found = listing[kind]()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    width = max(len(name) for name in found)
    for name, text in found.items():
        click.echo(f"{name:{width}}  {text}")


def _algorithms() -> dict[str, str]:
    from workloads.algorithms import registry

    found = {}
    for kind in registry.kinds():
        parameters = ", ".join(f"{name}: {type_}" for name, type_ in registry.parameters(kind).items())
        found[kind] = f"({parameters})  {_first_line(registry.find(kind))}"
    return found


def _workloads() -> dict[str, str]:
    from workloads.registry import BUILTINS

    return {name: builtin.description for name, builtin in BUILTINS.items()}


def _profiles() -> dict[str, str]:
    from netprofiles import catalog_names, load

    return {"uniform": UNIFORM} | {name: load(name).description for name in catalog_names()}


def _experiments() -> dict[str, str]:
    from harness.spec import Spec, builtin_names

    return {name: Spec.load(name).description for name in builtin_names()}


def _first_line(documented: object) -> str:
    import inspect

    return (inspect.getdoc(documented) or "").partition("\n")[0]
