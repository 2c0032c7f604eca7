"""wanbench compare"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness.cli import completion_command, terminal
from wanbench.harness.cli.options import across_hosts_option, by_hosts, out_option, rows_of
from wanbench.harness.errors import SpecError, as_spec_error

if TYPE_CHECKING:
    from wanbench.harness.analysis.compare import Comparison
    from wanbench.harness.results.store import RunFolder


@click.command("compare")
@click.argument("run_source", metavar="RUN", shell_complete=completion_command.runs)
@click.argument("head_source", metavar="[HEAD]", required=False, shell_complete=completion_command.runs)
@click.option(
    "--by",
    default=None,
    metavar="AXIS",
    help="testbed, emulator, collective, hosts ...; default: testbed, or, with HEAD, run.",
)
@click.option("--format", "form", type=click.Choice(("table", "md", "csv", "json")), default="table", show_default=True)
@click.option("--sort", type=click.Choice(("ratio", "-ratio")), help="Sort by ratio; -ratio puts the largest first.")
@click.option("--no-figures", is_flag=True, help="Print the table only.")
@across_hosts_option
@out_option
def command(run_source: str, head_source: str | None, form: str, out: Path, **options: Any) -> None:
    """Show the step time of each cell of RUN at two values of an axis, the ratio, and what the step-time law predicts.

    Step times are medians in seconds, with the minimum and maximum of the repetitions. With HEAD, the cells of two runs
    are compared. A parity figure is added to the figures of RUN. The exit code is 0 for any ratio: to fail a build, use
    `check`.

    \b
    Example:  wanbench compare crosscheck --by testbed
    """
    from wanbench.harness.results.store import open_run

    folder = open_run(run_source, out)
    head = None if head_source is None else open_run(head_source, out)
    comparison = _compared(folder, head, options["by"], options["across_hosts"])
    text = _text(comparison, form, options["sort"]).removesuffix("\n")
    if form == "table":
        terminal.show(text)
    else:
        click.echo(text)
    for line in [] if head is None else _specs_differ(folder.path, head.path):
        click.echo(line, err=True)
    if not options["no_figures"]:
        from wanbench.harness.show.figures.parity import draw_parity

        for path in draw_parity(comparison, folder.name, folder.path / "figures"):
            click.echo(path, err=True)


def _compared(folder: RunFolder, head: RunFolder | None, by: str | None, across_hosts: bool) -> Comparison:
    """Compare the cells of a run along an axis, or of two runs. Raises: SpecError."""
    from wanbench.harness.analysis.compare import compare

    rows = [{**row, "run": folder.name} for row in rows_of(folder)]
    if head is not None:
        name = head.name if head.name != folder.name else f"{head.name} ({head.path.parent})"
        rows += [{**row, "run": name} for row in rows_of(head)]
    axis = by or ("testbed" if head is None else "run")
    with as_spec_error(str(folder.path), ValueError):
        return compare(rows if axis == "hosts" else by_hosts(rows, across_hosts=across_hosts), axis)


def _specs_differ(base: Path, head: Path) -> list[str]:
    """One line for each key in which the specs of two runs differ."""
    from wanbench.harness.analysis.compare import differences
    from wanbench.harness.results import planned

    try:
        texts = differences(planned.read(base).spec, planned.read(head).spec)
    except SpecError as error:
        return [f"wanbench: the specs of the runs cannot be compared: {error}"]
    return [f"wanbench: the specs also differ: {text}" for text in texts]


def _text(comparison: Comparison, form: str, sort: str | None) -> str:
    """The comparison in a format."""
    from wanbench.harness.show.comparison import as_markdown, as_table
    from wanbench.harness.show.tables import objects_as_csv

    pairs = [pair.to_json() for pair in comparison.pairs]
    if form == "json":
        return json.dumps({"by": comparison.by, "pairs": pairs}, indent=1) + "\n"
    if form == "csv":
        return objects_as_csv(pairs)
    return as_table(comparison, sort) if form == "table" else as_markdown(comparison, sort)
