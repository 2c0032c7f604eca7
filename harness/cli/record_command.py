"""wanbench record"""

from pathlib import Path

import click

from wanbench.harness.cli import completion_command
from wanbench.harness.cli.figures_command import REFERENCE
from wanbench.harness.cli.options import fresh_option, jobs_option, keep_option, out_option
from wanbench.harness.errors import CellsFailed, SpecError


@click.command("record")
@click.argument("name", metavar="PAPER", shell_complete=completion_command.papers)
@click.option("--only", multiple=True, metavar="RUN", help="Only this experiment. Repeatable.")
@fresh_option
@keep_option
@jobs_option
@out_option
def command(name: str, only: tuple[str, ...], fresh: bool, keep: bool, jobs: int | None, out: Path) -> None:
    """Run the experiments of PAPER, record them and draw the figures.

    Repetitions that are finished under --out are not run again. Recordings and figures are written to
    results/reference/. Some experiments are emulated and take minutes.

    \b
    Example:  wanbench record dts --only dts-latency
    """
    from wanbench.harness.plan.plan import make
    from wanbench.harness.results.record import record
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.run.host import ThisHost
    from wanbench.harness.run.together import measure_all
    from wanbench.harness.show import papers
    from wanbench.harness.show.papers.drawing import draw_paper, wanted_evidence
    from wanbench.harness.spec.experiment import Spec
    from wanbench.harness.spec.library import read

    paper = papers.load(name)
    for run in only:
        if run not in paper.runs:
            raise SpecError(f"--only {run}: not an experiment of {name}; expected one of {', '.join(paper.runs)}")
    folders = {run: RunFolder(out / run) for run in only or paper.runs}
    for run, folder in folders.items():
        tally = measure_all(
            make(Spec.load(run), run, ThisHost()), folder, text=read(run), jobs=jobs, fresh=fresh, keep=keep, draw=False
        )
        if tally.failed:
            raise CellsFailed(f"{folder.path}: {len(tally.failed)} repetitions failed, so nothing is recorded")
    # Not before: a run that starts after this says that files of its checkout have changed.
    for run, folder in folders.items():
        click.echo(record(folder, REFERENCE / run, wanted_evidence(paper, run)).path)
    for path in draw_paper(paper, REFERENCE, REFERENCE / name):
        click.echo(path)
