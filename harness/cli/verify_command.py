"""wanbench verify"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from wanbench.harness.cli import completing
from wanbench.harness.cli.options import out_option, rows_of
from wanbench.harness.cli.terminal import show_entry
from wanbench.harness.errors import CellsFailed

_NAMED = 3
_INDENT = " " * 20


@click.command("verify", short_help="May the numbers of a run be published?")
@click.argument("run_source", metavar="[RUN]", required=False, shell_complete=completing.runs)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@out_option
def command(run_source: str | None, as_json: bool, out: Path) -> None:
    """Judge RUN (a folder, or a name under --out; default: the latest) by rules that anyone may read.

    \b
    complete   every cell has a valid repetition; an invalid one was emulated late or lossily, see its reason
    fidelity   the network of every valid repetition was measured before
    reps       3 valid repetitions of a cell, with seeds of their own; their step times differ by at most 10 %
    window     at least 20 steps and 3 (D + p), in multiples of p, were measured
    code       all cells of one kind of algorithm were measured by the same code
    payload    gloo was not run with scaled messages under the name of a full-size workload
    network    congestion control was pinned, and one worker was measured beside many
    timeline   a network that changes does so alike in all cells; every change came, at most 0.1 s after it was due,
               or, where workers get slow or are so no more, with their next step
    processor  at most 5 % of a step is overhead of this host, where compute is emulated
    accuracy   after equally many steps of the same workload, accuracy within 0.02 of ssgd's, or, without accuracy, a
               loss within a factor of 1.1; where nothing is learned, that is said and nothing is refused

    Of simulated cells one repetition is enough, and payload and tcp are free.

    \b
    Example:  wanbench verify latency-sweep

    Exit code 0 if nothing speaks against publishing, 4 otherwise.
    """
    from wanbench.harness.results import planned
    from wanbench.harness.results.store import open_run
    from wanbench.harness.results.verify import RULES, meaning, objections, unmeasured

    folder = open_run(run_source, out)
    rows = rows_of(folder)
    found = objections(rows, planned.read(folder.path).names)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    else:
        for rule in RULES:
            mine = [one for one in found if one.rule == rule]
            show_entry(f"{'REFUSED' if mine else 'ok':7}  {rule:9}  ", meaning(rule))
            if rule == "accuracy" and unmeasured(rows):
                names = ", ".join(unmeasured(rows))
                show_entry(_INDENT, f"not measured: {names} does not train a model; publish its speeds only")
            for text in dict.fromkeys(one.text for one in mine):
                cells = _named([one.cell for one in mine if one.text == text], folder.name)
                show_entry(_INDENT, f"{cells}: {text}")
    if found:
        problems = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        raise CellsFailed(f"{folder.path}: {problems}: do not publish yet")


def _named(cells: list[str | None], run: str) -> str:
    """The first few cells by name, or the run."""
    from wanbench.harness.show.grid import some

    return some([cell or run for cell in cells], _NAMED)
