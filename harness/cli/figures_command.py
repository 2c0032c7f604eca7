"""wanbench figures"""

import tempfile
from pathlib import Path
from typing import Any

import click

from wanbench.harness.cli import completion_command
from wanbench.harness.cli.options import across_hosts_option, by_hosts, read_run, run_options
from wanbench.harness.errors import EXIT_OK, SpecError, as_spec_error

REFERENCE = Path("results/reference")
EXIT_DIFFERENT, EXIT_NOT_COMPARABLE = 1, 5


@click.command("figures")
@run_options
@click.option(
    "-o", "--to", type=click.Path(file_okay=False, path_type=Path), help="Folder to write to; default: RUN/figures."
)
@click.option("--formats", default="svg,pdf,png,csv", show_default=True, help="Comma-separated; csv: the points.")
@click.option(
    "--beside",
    metavar="RUN",
    shell_complete=completion_command.runs,
    help="Draw another run dashed beside RUN: a folder, a name under --out, or a recorded one such as dts-latency.",
)
@click.option("--paper", metavar="NAME", help="Draw a paper's figures from results/reference/: dts, ..., or all.")
@click.option("--check", is_flag=True, help="With --paper: compare with committed files, and verify their runs.")
@across_hosts_option
def command(paper: str | None, check: bool, to: Path | None, formats: str, **options: Any) -> None:
    """Draw the figures of RUN (a folder, or a name under --out; default: the latest), deterministic to the byte.

    With --paper, figures are drawn from recorded runs only. --check writes nothing. It lists the files that would
    change, and what `wanbench verify` refuses about their runs. If there are any, the exit code is 1, or 5 if other
    library versions can be the only reason. A cell that is less accurate than ssgd is refused only where its accuracy
    is not shown.

    \b
    Example:  wanbench figures latency-sweep -o /tmp/figures
              wanbench figures my-sweep --beside dts-latency
              wanbench figures --paper dts --check
    """
    if paper is not None:
        if options["run_source"] is not None or options["beside"] is not None or options["across_hosts"]:
            raise SpecError("--paper draws from recorded runs; remove RUN, --beside and --across-hosts")
        click.get_current_context().exit(_paper(paper, to, check=check))
    if check:
        raise SpecError("--check: needs --paper")
    names = tuple(formats.split(","))
    for name in names:
        if name not in {"svg", "pdf", "png", "csv"}:
            raise SpecError(f"--formats {name}: expected svg, pdf, png or csv")
    _run(to, names, **options)


def _run(
    to: Path | None, formats: tuple[str, ...], run_source: str | None, beside: str | None, across_hosts: bool, out: Path
) -> None:
    folder, rows = read_run(run_source, out)
    shown = by_hosts(rows, across_hosts=across_hosts)
    from wanbench.harness.analysis.summary import AnalysisError
    from wanbench.harness.results.evidence import Evidence
    from wanbench.harness.show.figures import draw_all

    other = None if beside is None else _beside(beside, out, across_hosts=across_hosts)
    with as_spec_error(str(folder.path), AnalysisError):
        for path in draw_all(shown, folder.name, to or folder.path / "figures", formats, Evidence(folder), other):
            click.echo(path)


def _beside(source: str, out: Path, *, across_hosts: bool) -> tuple[str, list[dict[str, Any]]]:
    """Name and rows of a run: a folder, a name under `out`, or a recorded one."""
    recorded = not any((path / "manifest.json").is_file() for path in (Path(source), out / source))
    folder, rows = read_run(source, REFERENCE if recorded and (REFERENCE / source).is_dir() else out)
    return folder.name, by_hosts(rows, across_hosts=across_hosts)


def _paper(name: str, to: Path | None, *, check: bool) -> int:
    """Draw or check the figures of a paper, or of all. Return the exit code."""
    from wanbench.harness.show import papers
    from wanbench.harness.show.papers.drawing import check_paper, draw_paper, refusals

    if not REFERENCE.is_dir():
        raise SpecError(f"{REFERENCE}: no recorded runs here; use this command in a checkout of wanbench")
    codes = {EXIT_OK}
    for paper_name in papers.names() if name == "all" else [name]:
        paper = papers.load(paper_name)
        if not check:
            for path in draw_paper(paper, REFERENCE, (to or REFERENCE) / paper_name):
                click.echo(path)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            differences = check_paper(paper, REFERENCE, Path(scratch))
        differing = [(f"{REFERENCE / paper_name / other.file}: {other.why}", other.comparable) for other in differences]
        for line, is_ours in [*differing, *((line, True) for line in refusals(paper, REFERENCE))]:
            click.echo(line)
            codes.add(EXIT_DIFFERENT if is_ours else EXIT_NOT_COMPARABLE)
        click.echo(
            f"{paper_name}: {len(differences) or 'no'} file{'' if len(differences) == 1 else 's'} differ", err=True
        )
    return EXIT_DIFFERENT if EXIT_DIFFERENT in codes else max(codes)
