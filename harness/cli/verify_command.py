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

_INDENT = " " * 21


@click.command("verify", short_help="Check whether the numbers of a run may be published.")
@click.argument("run_source", metavar="[RUN]", required=False, shell_complete=completing.runs)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@out_option
def command(run_source: str | None, as_json: bool, out: Path) -> None:
    """Check RUN (a folder, or a name under --out; default: the latest) against the rules of publication.

    \b
    complete    every cell has a valid repetition; the reason column explains an invalid one
    consistent  each row agrees with itself: computing, stall and overhead add up to the step, ratios are possible,
                and a repetition has a reason if it is not valid, and else none
    fidelity    the network of every valid repetition was measured before it ran
    reps        a cell has 3 valid repetitions with different seeds; their step times differ by at most 10 %
    hosts       each host measured one worker too, and these step times differ by at most 3 %
    window      at least 20 steps and 3 (D + p) steps were measured, in multiples of p
    code        all cells of one kind of algorithm were measured with the same code
    payload     gloo did not run with scaled messages under the name of a full-size workload
    network     congestion control was pinned, and one worker was measured as well as many
    timeline    the network changes in the same way in all cells; every change came at most 0.1 s after it was due, or,
                if it makes workers slow or ends that, with their next step
    processor   if compute is emulated, at most 5 % of a step is overhead of this host
    accuracy    after the same number of steps of a workload, accuracy is within 0.02 of ssgd's, or, without accuracy,
                the loss is within a factor of 1.1; if no model is trained, this is reported and nothing is refused
    intact      the files are as they were written, and the steps say what the row says; a changed file was edited if it
                can still be read, else damaged. This is proof against accidents, not against a liar

    Simulated cells need only one repetition, and the rules on payload and TCP do not apply to them.

    The exit code is 0 if the numbers may be published, 4 if not.

    \b
    Example:  wanbench verify latency-sweep
    """
    from wanbench.harness.results import intact, planned
    from wanbench.harness.results.store import open_run
    from wanbench.harness.results.verify import (
        RULES,
        meaning,
        not_applicable,
        objections,
        problem_lines,
        problems_text,
        unmeasured,
    )

    folder = open_run(run_source, out)
    rows = rows_of(folder)
    found = objections(rows, planned.read(folder.path).names) + intact.objections(folder)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    else:
        for rule in RULES:
            mine = [one for one in found if one.rule == rule]
            exempt = not_applicable(rule, rows)
            verdict = "REFUSED" if mine else "ok" if exempt is None else "-"
            show_entry(_head(verdict, rule), meaning(rule) if exempt is None else f"Not applicable: {exempt}.")
            if rule == "accuracy" and exempt is None and unmeasured(rows):
                names = ", ".join(unmeasured(rows))
                show_entry(_INDENT, f"not measured: {names} does not train a model; publish its speeds only")
            for line in problem_lines(mine, folder.name):
                show_entry(_INDENT, line)
        mine, why = [one for one in found if one.rule == intact.RULE], intact.unknown(folder)
        show_entry(_head("REFUSED" if mine else "-" if why else "ok", intact.RULE), intact.MEANING)
        for line in (*problem_lines(mine, folder.name), *([f"not known: {why}"] if why else [])):
            show_entry(_INDENT, line)
    if found:
        raise CellsFailed(f"{folder.path}: {problems_text(found)}")


def _head(verdict: str, rule: str) -> str:
    return f"{verdict:7}  {rule:10}  "
