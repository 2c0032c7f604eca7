"""wanbench learn"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from wanbench.harness.cli import completing, terminal
from wanbench.harness.cli.options import interruptible, out_option, selections
from wanbench.harness.errors import SpecError


@click.command("learn", short_help="Record loss and accuracy by step for many algorithms, each with tuned rates.")
@click.argument("source", metavar="DESIGN", shell_complete=completing.designs)
@click.option("--only", multiple=True, metavar="KEY=NAME", help="Only this setting=NAME or condition=NAME. Repeatable.")
@click.option(
    "--algorithm",
    "own",
    multiple=True,
    metavar="ALGORITHM",
    help='Your own algorithm beside ssgd, tuned by the same grid: "my_pkg.sync:Mine", or a line of [algorithms] of a '
    "spec. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would run, and what it costs.")
@click.option("--record", is_flag=True, help="Store the trajectories in the package; with --only, beside those there.")
@click.option("--table", is_flag=True, help="Print tables in Markdown of what is recorded; run nothing.")
@click.option(
    "--data", type=click.Path(file_okay=False), help="Same as workload.data in a spec: the data set's folder."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Maximum number of trajectories at a time.")
@click.option("--fresh", is_flag=True, help="Delete earlier results of this design.")
@click.option("--keep", is_flag=True, help="Keep results that were measured with other code.")
@out_option
def command(
    source: str,
    only: tuple[str, ...],
    own: tuple[str, ...],
    dry_run: bool,
    record: bool,
    table: bool,
    data: str | None,
    jobs: int | None,
    fresh: bool,
    keep: bool,
    out: Path,
) -> None:
    """Train the settings of DESIGN, a built-in design or a TOML file, and record loss and accuracy by step.

    Learning rates are tuned first, on one seed and the same grid for every setting; then every seed is trained with the
    best. Training is simulated. Finished trajectories are not trained again, so the same command resumes. The last line
    on stdout is the run's folder, in which learned.json.gz has the trajectories.

    \b
    Example:  wanbench learn digits --dry-run
              wanbench learn digits --only setting=dts-d4-p4
              wanbench learn mnist --algorithm my_pkg.sync:Mine
    """
    from wanbench.harness.learning import design as designs
    from wanbench.harness.learning.campaign import Campaign, about
    from wanbench.harness.learning.cost import cost_text
    from wanbench.harness.learning.recording import RECORDED, SUFFIX, extended, read
    from wanbench.harness.learning.summary import text
    from wanbench.harness.results.store import RunFolder

    if fresh and keep:
        raise SpecError("--fresh and --keep: choose one")
    if record and own:
        raise SpecError("--record: stores the settings of a design; remove --algorithm")
    design = designs.load(source)
    stored = RECORDED / f"{design.name}{SUFFIX}"
    if record and only and not stored.is_file():
        raise SpecError(f"--record --only: adds to a recording, and {design.name} has none; record the whole design")
    if table:
        _print_table(design.name, out / design.run_name)
        return
    if data is not None:
        design = designs.parse({**design.plain(), "workload": {**design.workload, "data": data}}, source)
    design = design.with_settings(_settings(own)) if own else design
    whole = about(design)
    design = designs.narrowed(design, selections(only, "setting=NAME or condition=NAME"))
    terminal.show(cost_text(design), err=True)
    if dry_run:
        return
    folder = RunFolder(out / design.run_name)
    with interruptible("finished trajectories are kept; the same command continues"):
        recording = Campaign(design, folder, {"jobs": jobs, "fresh": fresh, "keep": keep}).run()
    recording.write(folder.path / f"learned{SUFFIX}")
    if record:
        (extended(read(stored), recording, whole) if only else recording).write(stored)
    terminal.show(text([recording]), err=True)
    click.echo(folder.path)


def _settings(own: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The user's settings by name, from references or lines of TOML. Raises: SpecError."""
    found: dict[str, dict[str, Any]] = {}
    for line in own:
        if "=" not in line:
            found[line.rpartition(":")[2].rpartition(".")[2].lower()] = {"kind": line}
            continue
        try:
            found |= tomllib.loads(line)
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"--algorithm {line}: not valid TOML: {error}") from None
    return found


def _print_table(name: str, run: Path) -> None:
    """Print the tables of one's own run if there is one, else of the recording in the package."""
    from wanbench.harness.learning.recording import RECORDED, SUFFIX, read
    from wanbench.harness.learning.summary import tables

    own, shipped = run / f"learned{SUFFIX}", RECORDED / f"{name}{SUFFIX}"
    path = own if own.is_file() else shipped
    if not path.is_file():
        raise SpecError(f"{name}: not recorded; run `wanbench learn {name}` first")
    click.echo(tables(read(path)))
