"""wanbench check"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import (
    SpecRequest,
    interruptible,
    jobs_option,
    json_option,
    planned,
    spec_options,
)
from wanbench.harness.errors import EXIT_INCONCLUSIVE, EXIT_OK, SpecError
from wanbench.harness.spec.library import find

if TYPE_CHECKING:
    from wanbench.harness.gate.verdict import Report
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.plan.plan import Plan


def _file(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=text)


@click.command("check")
@spec_options
@_file("--baseline", "Compare results that repeat exactly with this file.")
@click.option("--accept", is_flag=True, help="Write the results to the baseline, also if it does not exist.")
@click.option("--allow-no-code", is_flag=True, help="Check cells that depend on no file of yours.")
@click.option(
    "--base",
    metavar="REV|RUN|image:NAME",
    help="Measure this version alternately with --head, or compare two run folders.",
)
@click.option(
    "--head", metavar="REV|RUN|image:NAME", help="The other version or run; default: the working folder (`.`)."
)
@click.option(
    "--aa", is_flag=True, help="Measure the noise of this host: how much two equal sides differ. Later checks use it."
)
@_file("--noise", "File with the noise of this host; default: ~/.local/state/wanbench/noise.json.")
@click.option(
    "--inconclusive",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="Exit code if some cells are inconclusive, not comparable or new: 5 (fail) or 0 (pass).",
)
@jobs_option
@_file("--summary", "Append a Markdown summary to this file.")
@_file("--append", "Append the outcome to this file: a line of JSON with every metric of every cell.")
@click.option(
    "--metrics",
    nargs=2,
    type=(click.Choice(("bencher", "github", "asv")), click.Path(path_type=Path)),
    metavar="FORMAT FILE",
    help="Write the measurements to a file for Bencher or github-action-benchmark, or to a folder for asv.",
)
@_file("--junit", "Write JUnit XML.")
@click.option("--github", is_flag=True, help="Write GitHub annotations and the step summary.")
@json_option
def command(request: SpecRequest, inconclusive: str, as_json: bool, **options: Any) -> None:
    """Compare SPEC with a baseline file or another version, and test its [[gate.require]] claims.

    Values that repeat exactly (simulated times, messages, bytes) are compared exactly. For measured step times, base
    and head run alternately on this host, 5 to 10 times each. In simulated builds of 44 cells whose repetitions vary
    by 3 %, a cell that was 15 % slower was found 9 times in 10, and none of 2000 builds without a change failed.

    \b
    Exit codes: 0 something was judged, and nothing got worse   1 a cell regressed, or a requirement is broken
                4 a cell failed   5 inconclusive, not comparable, or only on one side   2 usage or spec
                3 this host cannot   70 internal error   130 interrupted

    \b
    Example:  wanbench check gate.toml --testbed virtual --baseline baselines/gate.json
              wanbench check gate.toml --aa
              wanbench check gate.toml --base origin/main --github
    """  # fmt: skip
    from wanbench.harness.gate import journal, output

    with interruptible("there is no verdict"):
        if request.spec_source == "-":
            raise SpecError("check -: give a file or a name; check reads the spec more than once")
        _, plan, cells = planned(request, gated=True)
        if options["append"] is not None:
            journal.refuse_other(options["append"], plan.spec.name)
        report = _judged(plan, cells, request, options)
    code = report.exit_code(undecided=EXIT_OK if inconclusive == "pass" else EXIT_INCONCLUSIVE)
    _write(report, code, request.spec_source, request.out / f"check-{plan.spec.name}", options)
    if as_json:
        click.echo(json.dumps(report.to_json(code), indent=1))
    else:
        terminal.show(output.as_text(report).removesuffix("\n"))
    click.get_current_context().exit(code)


def _judged(plan: Plan, cells: list[Cell], request: SpecRequest, options: dict[str, Any]) -> Report:
    from wanbench.harness.gate import noise
    from wanbench.harness.gate.check import Work, against_baseline, claims_only, compare, measure_noise
    from wanbench.harness.run.manifest import own_code

    _refuse(options)
    source, out = request.spec_source, request.out
    work = Work(
        plan=plan,
        cells=cells,
        where=source,
        file=find(source),
        folder=out / f"check-{plan.spec.name}",
        options=_passed_on(request, options["jobs"]),
        jobs=options["jobs"],
        noise_path=options["noise"] or noise.default_path(),
        partial=bool(request.only),
        code=own_code(cells),
    )
    work.check(only_claims=not options["aa"] and options["base"] is None and options["baseline"] is None)
    if options["aa"]:
        return measure_noise(work)
    if not (work.code or options["allow_no_code"]):
        raise SpecError(
            f"{source}: no cell depends on a file of yours, so no change of your code can fail this check; name your "
            'program (command = ["python", "train.py"]), model ("my_pkg.train:make") or algorithm, or allow it with '
            "--allow-no-code"
        )
    if options["base"] is not None:  # an empty one is a variable that is not set, and refused as a revision
        report = compare(work, options["base"], options["head"] or ".", out)
    elif options["baseline"]:
        report = against_baseline(work, options["baseline"], accept=options["accept"])
    else:
        report = claims_only(work)
    return replace(report, code=report.code or work.code)


def _refuse(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other. Raises: SpecError."""
    modes = [f"--{name}" for name in ("baseline", "base", "aa") if options[name]]
    if len(modes) > 1:
        raise SpecError(f"{' and '.join(modes)}: choose one")
    if options["aa"] and options["append"]:
        raise SpecError("--append: not with --aa, which measures this host, not a commit; remove one of them")
    if options["head"] and not options["base"]:
        raise SpecError("--head: needs --base to compare with")
    if options["accept"] and not options["baseline"]:
        raise SpecError("--accept: needs --baseline FILE, the file to write")


def _passed_on(request: SpecRequest, jobs: int | None) -> tuple[str, ...]:
    """The options that are passed on to the `run` of each side."""
    options = {
        "--only": request.only,
        "--set": request.assignments,
        "--drop": request.drop,
        "--testbed": (request.testbed,),
        "--emulator": (request.emulator,),
        "--jobs": (jobs and str(jobs),),
    }
    given = [(name, value) for name, values in options.items() for value in values if value]
    return tuple(part for pair in given for part in pair)


def _write(report: Report, code: int, source: str, folder: Path, options: dict[str, Any]) -> None:
    """Write check.json, and the files for CI systems that were asked for."""
    from wanbench.harness.gate import journal, output, services
    from wanbench.harness.results.disk import write_json

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "check.json", report.to_json(code))
    if options["junit"] is not None:
        output.write_junit(options["junit"], report)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY") if options["github"] else None
    for path in filter(None, (options["summary"], step_summary and Path(step_summary))):
        output.append_summary(path, report)
    if options["github"]:
        for line in output.as_annotations(report, os.path.relpath(find(source))):
            click.echo(line, err=True)
    if options["append"] is not None and not journal.append(options["append"], report):
        click.echo(f"wanbench: --append {options['append']}: nothing was measured, so nothing was appended", err=True)
    if options["metrics"] is not None:
        form, file = options["metrics"]
        if (measured := journal.measured(report)) is not None:
            services.write(form, measured, file)
        else:
            click.echo(f"wanbench: --metrics {form} {file}: nothing was measured, so nothing was written", err=True)
