"""wanbench learn"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness.cli import completion_command, terminal
from wanbench.harness.cli.options import fresh_option, interruptible, keep_option, out_option, selections
from wanbench.harness.errors import SpecError, as_spec_error

if TYPE_CHECKING:
    from wanbench.harness.learning.design import Design


@click.command("learn")
@click.argument("source", metavar="DESIGN", shell_complete=completion_command.designs)
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
@click.option("--record", is_flag=True, help="Store the trajectories in the package; with --only, add to those there.")
@click.option(
    "--data", type=click.Path(file_okay=False), help="Same as workload.data in a spec: the data set's folder."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Maximum number of trajectories at a time.")
@fresh_option
@keep_option
@out_option
def command(source: str, only: tuple[str, ...], record: bool, dry_run: bool, out: Path, **options: Any) -> None:
    """Train the settings of DESIGN, a built-in design or a TOML file, and record their loss and accuracy by step.

    Learning rates are tuned first, on one seed and the same grid for every setting; then every seed is trained with the
    best. Training is simulated. A trajectory is one setting trained with one seed. Finished ones are not trained again,
    so the same command resumes. The last line on stdout is the run's folder, in which learned.json.gz has all of them.

    \b
    Example:  wanbench learn digits --dry-run
              wanbench learn digits --only setting=dts-d4-p4
              wanbench learn mnist --algorithm my_pkg.sync:Mine
    """
    from wanbench.harness.learning.cost import cost_text
    from wanbench.harness.learning.design import load, narrowed
    from wanbench.harness.learning.recording import RECORDED, SUFFIX

    if options["fresh"] and options["keep"]:
        raise SpecError("--fresh and --keep: choose one")
    if record and options["own"]:
        raise SpecError("--record: stores the settings of a design; remove --algorithm")
    design = load(source)
    if record and only and not (RECORDED / f"{design.name}{SUFFIX}").is_file():
        raise SpecError(f"--record --only: adds to a recording, and {design.name} has none; record the whole design")
    whole = _changed(design, source, options["data"], options["own"])
    part = narrowed(whole, selections(only, "setting=NAME or condition=NAME"))
    terminal.show(cost_text(part), err=True)
    if not dry_run:
        _measure(part, whole if only else None, out, record, {key: options[key] for key in ("jobs", "fresh", "keep")})


def _changed(design: Design, source: str, data: str | None, own: tuple[str, ...]) -> Design:
    """The design with the user's folder of data and algorithms. Raises: SpecError."""
    from wanbench.harness.learning.design import parse

    if data is not None:
        design = parse({**design.plain(), "workload": {**design.workload, "data": data}}, source)
    return design.with_settings(_settings(own)) if own else design


def _measure(design: Design, whole: Design | None, out: Path, record: bool, options: dict[str, Any]) -> None:
    """Train a design, or a part of the `whole`, and write what was recorded."""
    from wanbench.harness.learning.campaign import Campaign, about
    from wanbench.harness.learning.recording import RECORDED, SUFFIX, extended, read
    from wanbench.harness.learning.summary import text
    from wanbench.harness.results.store import RunFolder

    folder, stored = RunFolder(out / design.run_name), RECORDED / f"{design.name}{SUFFIX}"
    with interruptible("finished trajectories are kept; the same command continues"):
        recording = Campaign(design, folder, options).run()
    recording.write(folder.path / f"learned{SUFFIX}")
    if record:
        (recording if whole is None else extended(read(stored), recording, about(whole))).write(stored)
    terminal.show(text([recording]), err=True)
    click.echo(folder.path)


def _settings(own: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The user's settings by name, from references or lines of TOML. Raises: SpecError."""
    settings: dict[str, dict[str, Any]] = {}
    for line in own:
        with as_spec_error(f"--algorithm {line}: not valid TOML", tomllib.TOMLDecodeError):
            name = line.rpartition(":")[2].rpartition(".")[2].lower()  # of an algorithm such as "my_pkg.sync:Mine"
            settings |= tomllib.loads(line) if "=" in line else {name: {"kind": line}}
    return settings
