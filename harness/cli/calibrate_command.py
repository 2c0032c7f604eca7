"""wanbench calibrate"""

from __future__ import annotations

import click


@click.command(
    "calibrate",
    short_help="A workload by numbers from a real training script.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(argv: tuple[str, ...]) -> None:
    """Run CMD alone on this host, measure its optimizer's steps, and print the workload as a table for a spec.

    \b
    Example:  wanbench calibrate -- python train.py --steps 100 > workload.toml

    The script is untouched: torch's optimizers tell their steps by a hook. A loop with gradient accumulation calls
    wanbench.step() where its steps end.
    """
    from wanbench.harness.calibrate import calibrate

    click.echo(calibrate(argv).to_toml(argv), nl=False)
