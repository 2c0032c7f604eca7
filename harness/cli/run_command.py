"""wanbench run"""

from __future__ import annotations

import signal
from pathlib import Path

import click

from wanbench.harness.cli.options import load_spec, planned, read_source, select, spec_options
from wanbench.harness.errors import CellsFailed, Interrupted, SpecError


@click.command("run", short_help="Run an experiment; run it again to resume.")
@spec_options
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Reps side by side, at most; default: what the processors carry, up to 6.",
)
@click.option("--fresh", is_flag=True, help="Throw earlier results of this experiment away.")
@click.option("--keep", is_flag=True, help="Keep results that other code measured.")
@click.option("--no-figures", is_flag=True, help="Measure only.")
def command(
    spec_source: str,
    assignments: tuple[str, ...],
    drop: tuple[str, ...],
    only: tuple[str, ...],
    testbed: str | None,
    emulator: str | None,
    out: Path,
    jobs: int | None,
    fresh: bool,
    keep: bool,
    no_figures: bool,
) -> None:
    """Run the experiment SPEC (a TOML file or a built-in name). Finished repetitions are not run again.

    \b
    Example:  wanbench run latency-sweep --set run.repeats=1 --only algorithm=ssgd --only rtt=100ms

    The last line on stdout is the run's folder.
    """
    if fresh and keep:
        raise SpecError("--fresh and --keep: choose one")
    # Background jobs inherit SIGINT ignored. While cells run, `harness.run.session` takes over.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        source = read_source(spec_source)
        spec = load_spec(source, assignments, drop, testbed, emulator)
        plan = planned(spec, source.where)
        cells = select(plan, only)

        from wanbench.harness.api import measure_all
        from wanbench.harness.results.store import RunFolder

        folder = RunFolder(out / spec.name)
        draw = not no_figures
        tally = measure_all(plan, folder, cells=cells, text=source.text, jobs=jobs, fresh=fresh, keep=keep, draw=draw)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; finished repetitions are kept; the same command continues") from None
    click.echo(folder.path)
    if tally.failed:
        names = ", ".join(dict.fromkeys(tally.failed))
        raise CellsFailed(f"{len(tally.failed)} repetitions have no valid result: {names}")
