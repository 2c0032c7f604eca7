"""wanbench report"""

from pathlib import Path

import click

from wanbench.harness.cli.options import across_hosts_option, by_hosts, read_run, run_options
from wanbench.harness.errors import writing


@click.command("report")
@run_options
@click.option(
    "-o", "--to", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: RUN/report.html."
)
@across_hosts_option
def command(run_source: str | None, to: Path | None, across_hosts: bool, out: Path) -> None:
    """Write one self-contained HTML page of RUN (a folder, or a name under --out; default: the latest).

    The page shows the best algorithm of every network, figures with their values, a table of all cells to sort and
    filter, problems that forbid publishing, failures with the end of their logs, the environment and the spec. It
    needs no network and can be printed. The command prints its path.

    \b
    Example:  wanbench report latency-sweep -o report.html
    """
    from wanbench.harness.show.report import write_report

    folder, rows = read_run(run_source, out)
    path = to or folder.path / "report.html"
    by_hosts(rows, across_hosts=across_hosts)
    with writing(path, "the page", "; choose another file with -o"):
        click.echo(write_report(folder, path, across_hosts=across_hosts))
