"""wanbench check"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import load_spec, select, spec_options
from harness.errors import EXIT_INCONCLUSIVE, EXIT_OK, Interrupted, SpecError

if TYPE_CHECKING:
    from harness.gate.verdict import Report


@click.command("check", short_help="Fail where scalability regressed: the gate of a CI build.")
@spec_options
@click.option("--baseline", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Compare what repeats exactly with this file; a missing one passes.")
@click.option("--accept", is_flag=True, help="Write the results to the baseline.")
@click.option("--inconclusive", type=click.Choice(["fail", "pass"]), default="fail", show_default=True,
              help="What to do where there is no telling: exit with 5, or with 0.")
@click.option("--jobs", type=click.IntRange(min=1), help="Reps side by side, at most.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(
    spec_source: str,
    assignments: tuple[str, ...],
    only: tuple[str, ...],
    testbed: str | None,
    emulator: str | None,
    out: Path,
    inconclusive: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge SPEC against a baseline and its [[gate.require]].

    \b
    Example:  wanbench check latency-sweep --testbed virtual --baseline baselines/latency-sweep.json

    Exit code 0 if nothing got worse, 1 if something did, 4 if a cell failed, 5 where there is no telling.
    """  # fmt: skip
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        spec = load_spec(spec_source, assignments, testbed, emulator)
        cells = select(spec, spec_source, only)
        report = _judged(spec, cells, spec_source, out, bool(only), options)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was judged") from None
    code = report.exit_code(undecided=EXIT_OK if inconclusive == "pass" else EXIT_INCONCLUSIVE)
    _say(report, code, as_json)
    click.get_current_context().exit(code)


def _judged(spec: Any, cells: Any, source: str, out: Path, partial: bool, options: dict[str, Any]) -> Report:
    from harness.gate.check import against_baseline, claims_only
    from harness.store import RunFolder

    folder = RunFolder(out / f"check-{spec.name}")
    path, accept, jobs = options["baseline"], options["accept"], options["jobs"]
    if path is not None:
        return against_baseline(spec, cells, source, folder, path, accept=accept, partial=partial, jobs=jobs)
    if accept:
        raise SpecError("--accept: writes a baseline; say which with --baseline FILE")
    if not spec.gate.require:
        raise SpecError(f"{source}: nothing to check; give --baseline FILE, --base and --head, or [[gate.require]]")
    return claims_only(spec, cells, source, folder, jobs)


def _say(report: Report, code: int, as_json: bool) -> None:
    from harness.gate.text import as_text

    text = json.dumps(report.to_json(code), indent=1) + "\n" if as_json else as_text(report)
    click.echo(text, nl=False)
