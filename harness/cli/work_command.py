"""wanbench work"""

from pathlib import Path

import click

from wanbench.harness.cli import completion_command
from wanbench.harness.cli.options import interruptible, jobs_option, keep_option, out_option
from wanbench.harness.errors import CellsFailed


@click.command("work")
@click.argument("source", metavar="RUN", shell_complete=completion_command.runs)
@jobs_option
@keep_option
@out_option
def command(source: str, jobs: int | None, keep: bool, out: Path) -> None:
    """Measure repetitions of RUN that nobody has measured, until none is left.

    RUN is a folder that `wanbench run` made, or its name under --out. Any number of processes on any hosts can do this
    at once, `wanbench run` with the same spec among them, and each can be killed and started again. If one dies, others
    measure its repetitions again, at most 15 s later. Failed repetitions are not tried again; `wanbench run` does that.
    The last line on stdout is the run's folder.

    \b
    Example:  wanbench work /shared/results/latency-sweep
              wanbench work latency-sweep --out /shared/results --jobs 4
    """
    with interruptible("finished repetitions are kept; others continue"):
        from wanbench.harness.results.store import open_run
        from wanbench.harness.run.together import help_measuring

        folder = open_run(source, out)
        tally = help_measuring(folder, jobs=jobs, keep=keep)
    click.echo(folder.path)
    if tally.failed:
        count = "1 repetition has" if len(tally.failed) == 1 else f"{len(tally.failed)} repetitions have"
        raise CellsFailed(f"{count} no valid result; `wanbench run` with the spec tries again")
