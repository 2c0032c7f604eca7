"""wanbench history"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.cli import completing, terminal
from wanbench.harness.cli.options import out_option, selections
from wanbench.harness.errors import HostError, SpecError

if TYPE_CHECKING:
    from wanbench.harness.analysis.history import History
    from wanbench.harness.results.outcome import Outcome

_JOURNAL = ".jsonl"


@click.command("history", short_help="Show a metric over commits, and which commit changed it.")
@click.argument("sources", metavar="[RUN]...", nargs=-1, shell_complete=completing.runs)
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read every committed version of this baseline from git; REV..REV in place of RUN keeps some.",
)
@click.option("--metric", default="scalability", show_default=True, help="A column of the results.")
@click.option("--only", multiple=True, metavar="AXIS=VALUE", help="Keep only the cells with this value. Repeatable.")
@click.option(
    "-o",
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for figure and page; default: history-EXPERIMENT under --out.",
)
@click.option("--no-figures", is_flag=True, help="Print the table only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@out_option
def command(sources: tuple[str, ...], baseline: Path | None, metric: str, only: tuple[str, ...], out: Path,
            to: Path | None, *, no_figures: bool, as_json: bool) -> None:  # fmt: skip
    """Show which cell changed, at which commit, by how much, and how certain that is.

    RUN is the folder of a run, the older ones first, or one file that `wanbench check --append` wrote. Every difference
    of simulated values counts. Among measured values, a change must be significant, so it needs at least three commits
    on each side, and ten or more in all. A figure and a page are written too. The exit code is 0 for any change:
    `check` is the gate.

    \b
    Example:  wanbench history history.jsonl
              wanbench history --baseline baselines/gate.json v1.0..HEAD
              wanbench history nightly/*/latency-sweep --metric step_time_s --only algorithm=ssgd
    """
    from wanbench.harness.analysis.history import follow
    from wanbench.harness.gate.outcomes import select
    from wanbench.harness.show.history_table import as_text

    wanted = selections(only, "AXIS=VALUE, e.g. --only algorithm=ssgd")
    history = follow(select(_outcomes(sources, baseline, out), metric, wanted), metric)
    if as_json:
        click.echo(json.dumps(history.to_json(), indent=1))
    else:
        terminal.show(as_text(history).removesuffix("\n"))
    if not no_figures:
        folder = to or out / f"history-{history.experiment}"
        try:
            for path in _drawn(history, folder):
                click.echo(path, err=True)
        except OSError as error:
            raise HostError(f"{folder}: cannot be written ({error.strerror}); choose another folder with -o") from None


def _drawn(history: History, folder: Path) -> list[Path]:
    from wanbench.harness.show.figures import save_all
    from wanbench.harness.show.figures.history import drawing
    from wanbench.harness.show.report.history import write_history

    return [*save_all(drawing(history), folder), write_history(history, folder / "history.html")]


def _outcomes(sources: tuple[str, ...], baseline: Path | None, out: Path) -> list[Outcome]:
    from wanbench.harness.gate import journal, outcomes
    from wanbench.harness.results.store import open_run

    def say(text: str) -> None:
        click.echo(f"wanbench: {text}", err=True)

    if baseline is not None:
        if len(sources) > 1:
            raise SpecError(f"--baseline {baseline}: expected at most one range of commits, got {' '.join(sources)}")
        return outcomes.of_baseline(baseline, next(iter(sources), None), say)
    if any(source.endswith(_JOURNAL) for source in sources):
        if len(sources) > 1:
            raise SpecError(f"{' '.join(sources)}: give one file of outcomes, or run folders")
        return journal.read(Path(sources[0]), say)
    if not sources:
        raise SpecError("history: give run folders, a file that `check --append` wrote, or --baseline FILE")
    return outcomes.of_runs([open_run(source, out) for source in sources])
