"""wanbench verify"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.cli.options import json_option, read_run, run_options
from wanbench.harness.cli.terminal import show_entry
from wanbench.harness.errors import CellsFailed
from wanbench.harness.results.rules import INTACT, RULES

if TYPE_CHECKING:
    from wanbench.harness.results.columns import Row
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.results.verify import Objection

_HELP = """Check RUN (a folder, or a name under --out; default: the latest) against the rules of publication.

\b
{rules}

The rule `accuracy` refuses nothing if no model is trained; the output then says so. Simulated cells need only one
repetition, and the rules of what an emulation can get wrong (fidelity, hosts, payload, processor, TCP) do not apply to
them.

The exit code is 0 if the numbers may be published, 4 if not.

\b
Example:  wanbench verify latency-sweep
"""


_WRAPPED = [textwrap.fill(f"{rule:11} {sentence}", 108, subsequent_indent=" " * 12) for rule, sentence in RULES.items()]


@click.command("verify", help=_HELP.format(rules="\n".join(_WRAPPED)))
@run_options
@json_option
def command(run_source: str | None, as_json: bool, out: Path) -> None:
    from wanbench.harness.results import planned
    from wanbench.harness.results.verify import file_objections, objections, problems_text

    folder, rows = read_run(run_source, out)
    problems = objections(rows, planned.read(folder.path).names) + file_objections(folder)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(problem) for problem in problems], indent=1))
    else:
        for rule in RULES:
            _show(rule, [problem for problem in problems if problem.rule == rule], folder, rows)
    if problems:
        raise CellsFailed(f"{folder.path}: {problems_text(problems)}")


def _show(rule: str, problems: Sequence[Objection], folder: RunFolder, rows: Sequence[Row]) -> None:
    """Print the verdict of a rule, its requirement, and what breaks it."""
    from wanbench.harness.results.verify import files_not_known, not_applicable, problem_lines, unmeasured

    exempt, remarks = not_applicable(rule, rows), problem_lines(problems, folder.name)
    if rule == "accuracy" and exempt is None and (names := unmeasured(rows)):
        remarks.append(f"not measured: {', '.join(names)} does not train a model; publish its speeds only")
    not_known = files_not_known(folder) if rule == INTACT else None
    if not_known is not None:
        remarks.append(f"not known: {not_known}")
    verdict = "REFUSED" if problems else "-" if exempt or not_known else "ok"
    show_entry(f"{verdict:7}  {rule:10}  ", RULES[rule] if exempt is None else f"Not applicable: {exempt}.")
    for line in remarks:
        show_entry(" " * 21, line)
