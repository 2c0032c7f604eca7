"""wanbench trace"""

from pathlib import Path

import click

from wanbench.harness.errors import as_spec_error


@click.command("trace")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--every", metavar="TIME", help="Length of a step, such as 500ms. [default: 1s; at most 2000 steps]")
@click.option(
    "--columns",
    metavar="OURS=THEIRS[:UNIT],...",
    help="Columns of a table: time_s, and any of rtt_ms, rate_mbps, loss_pct and the other columns of a trace. "
    "THEIRS is a name, or a number from 1 if the table has no header.",
)
@click.option(
    "--lost",
    multiple=True,
    metavar="VALUE",
    help="A round trip or delay that stands for a lost packet, such as 0, -1 or timeout. Repeatable.",
)
def command(file: Path, every: str | None, columns: str | None, lost: tuple[str, ...]) -> None:
    """Print FILE as a trace: a CSV file for the key `trace` of a [[timeline]].

    FILE is a mahimahi trace, the JSON of `iperf3 --json`, the output of `ping` or `fping` (best with -D), or a table.
    The format is recognised by its content.

    Each step has the mean rate (bytes are kept), the median round trip and the share of lost packets of its time. If
    nothing passes in a step, its loss is 100 %. A share p of lost round trips is a loss of 1 - sqrt(1 - p) each way.

    \b
    Example:  wanbench trace ping.log > day.csv
              wanbench trace Verizon-LTE.down --every 500ms > lte.csv
              wanbench trace 5g.csv --columns time_s=Timestamp,rate_mbps=DL_bitrate:kbps > 5g-trace.csv
              wanbench trace rtts.csv --columns time_s=tx,rtt_ms=rtt:us --lost 0 > rtts-trace.csv
    """
    from wanbench.harness.timeline.convert import convert
    from wanbench.netprofiles import Delay, FileError, UnitError
    from wanbench.netprofiles.user_file import read_text

    with as_spec_error("--every", UnitError):
        step = Delay.parse(every) if every is not None else None
        if step is not None and not step.ns:
            raise UnitError("expected more than 0, such as '1s'")
    with as_spec_error(str(file), FileError):
        text = read_text(file, errors="replace")
    made = convert(text, str(file), step.seconds if step else None, columns, lost)
    click.echo(made.to_csv(), nl=False)
    for remark in made.remarks:
        click.echo(remark, err=True)
