"""wanbench results"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import across_hosts_option, by_hosts, read_run, run_options
from wanbench.harness.errors import as_spec_error

if TYPE_CHECKING:
    from wanbench.harness.results.columns import Row
    from wanbench.harness.results.store import RunFolder

_FORMATS = ("table", "pivot", "md", "csv", "json", "parquet", "bencher", "github", "asv")


@click.command("results")
@run_options
@click.option("--format", "form", type=click.Choice(_FORMATS), default="table", show_default=True)
@click.option(
    "--sort", metavar="COLUMN", help="Sort a table by step_time_s, scalability, ...; -COLUMN puts the largest first."
)
@click.option("--all", "earlier", is_flag=True, help="Include repetitions of earlier versions of the spec.")
@across_hosts_option
def command(run_source: str | None, form: str, sort: str | None, earlier: bool, across_hosts: bool, out: Path) -> None:
    """Show what is finished in RUN (a folder, or a name under --out; default: the latest), and what failed and why.

    table and pivot start with the best algorithm of every network: its speed, and its cost in accuracy and bytes. If
    the network changed over time, they then list the changes. After that they show one entry per cell; md shows only
    these entries. csv, json and parquet have one object per repetition. parquet prints the path of its file.

    bencher, github and asv are the formats of Bencher, github-action-benchmark (customSmallerIsBetter) and asv. asv
    writes a results folder into RUN, and prints the path of the file of this commit.

    If hosts differ by more than 3 % in the step time of one worker, each has its own entries.

    \b
    Example:  wanbench results latency-sweep --format pivot
              wanbench results latency-sweep --sort -scalability
    """
    from wanbench.harness.show.best import best_text
    from wanbench.harness.show.tables import render, timeline_table

    folder, rows = read_run(run_source, out, earlier=earlier)
    if (text := _for_machines(folder, rows, form, earlier)) is not None:
        click.echo(text, nl=False)
        return
    shown = by_hosts(rows, across_hosts=across_hosts) if form in ("table", "pivot", "md") else rows
    with as_spec_error(str(folder.path), ValueError):
        text = render(shown, form, sort)  # type: ignore[arg-type]  # click has checked the choice
    opening = (
        "\n".join(filter(None, [best_text(shown), timeline_table(rows)]))
        if form in ("table", "pivot") and not earlier
        else ""
    )
    whole = f"{opening}\n{text}".lstrip()
    if form in ("table", "pivot"):
        terminal.show(whole.removesuffix("\n"))
    else:
        click.echo(whole, nl=False)
    click.echo(_state(folder.path.name, rows), err=True)


def _for_machines(folder: RunFolder, rows: Sequence[Row], form: str, earlier: bool) -> str | None:
    """The text, or the path of the file that was written, in a format of a service or in Parquet; None in another."""
    from wanbench.harness.gate import services
    from wanbench.harness.show.tables import write_parquet

    if form == "parquet":
        path = folder.path / ("results-all.parquet" if earlier else "results.parquet")
        write_parquet(rows, path)
        return f"{path}\n"
    if form == "asv":
        return f"{services.write_asv(rows, folder.manifest(), folder.path / 'asv')}\n"
    texts = {"bencher": services.as_bencher, "github": services.as_github}
    return texts[form](rows) if form in texts else None


def _state(name: str, rows: Sequence[Row]) -> str:
    counts = {status: sum(row["status"] == status for row in rows) for status in ("ok", "invalid", "failed")}
    text = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing measured yet"
    return f"{name}: {text}"
