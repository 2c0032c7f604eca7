"""wanbench figures"""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import out_option
from harness.errors import SpecError


@click.command("figures", short_help="Draw the figures of a run.")
@click.argument("run_source", metavar="[RUN]", required=False)
@click.option("-o", "--to", type=click.Path(file_okay=False, path_type=Path), help="Where to; default: RUN/figures.")
@click.option("--formats", default="svg,pdf,png", show_default=True, help="Comma-separated file types.")
@out_option
def command(run_source: str | None, to: Path | None, formats: str, out: Path) -> None:
    """Draw the figures of RUN (a folder, or a name under --out; default: the latest), deterministic to the byte.

    \b
    Example:  wanbench figures latency-sweep -o /tmp/figures
    """
    from harness.store import open_run

    wanted = tuple(formats.split(","))
    for name in wanted:
        if name not in {"svg", "pdf", "png"}:
            raise SpecError(f"--formats {name}: expected svg, pdf or png")
    folder = open_run(run_source, out)
    rows = folder.rows()
    if not any(row["status"] == "ok" and row["workers"] > 1 for row in rows):
        raise SpecError(f"{folder.path}: no finished repetition of more than one worker yet; nothing to draw")

    from harness.evidence import Evidence
    from harness.figures import draw_all

    for path in draw_all(rows, folder.name, to or folder.path / "figures", formats=wanted, evidence=Evidence(folder)):
        click.echo(path)
