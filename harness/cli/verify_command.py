"""wanbench verify"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from harness.cli.options import out_option
from harness.errors import CellsFailed

_NAMED = 3


@click.command("verify", short_help="May the numbers of a run be published?")
@click.argument("run_source", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@out_option
def command(run_source: str | None, as_json: bool, out: Path) -> None:
    """Judge RUN (a folder, or a name under --out; default: the latest) by rules that anyone may read.

    \b
    Example:  wanbench verify latency-sweep

    Exit code 0 if nothing speaks against publishing, 4 otherwise.
    """
    from harness.expected import expected_cells
    from harness.store import open_run
    from harness.verify import RULES, meaning, objections

    folder = open_run(run_source, out)
    found = objections(folder.rows(), expected_cells(folder))
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    else:
        for rule in RULES:
            mine = [one for one in found if one.rule == rule]
            click.echo(f"{'REFUSED' if mine else 'ok':7}  {rule:9}  {meaning(rule)}")
            for text in dict.fromkeys(one.text for one in mine):
                click.echo(f"{'':20}{_where([one.cell for one in mine if one.text == text], folder.name)}: {text}")
    if found:
        raise CellsFailed(f"{folder.path}: {len(found)} objections; not to be published as it is")


def _where(cells: list[str | None], run: str) -> str:
    """Which cells, in a line."""
    names = [cell or run for cell in cells]
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
