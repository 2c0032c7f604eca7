"""wanbench calibrate"""

from __future__ import annotations

import click


@click.command(
    "calibrate",
    short_help="Measure a training script and print it as a workload for a spec.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(argv: tuple[str, ...]) -> None:
    """Run CMD alone on this host, measure its optimizer steps, and print them as a [workload] table for a spec.

    The script stays unchanged: a hook in torch's optimizers reports the steps. A loop with gradient accumulation calls
    wanbench.step() where a step ends.

    \b
    Example:  wanbench calibrate -- python train.py --steps 100 > workload.toml
    """
    from wanbench.harness.calibrate import calibrate

    click.echo(calibrate(argv).to_toml(argv), nl=False)
