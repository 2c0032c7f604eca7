"""wanbench clean"""

from __future__ import annotations

import click


@click.command("clean", short_help="Remove what a crashed run may have left on this host.")
@click.option("--dry-run", is_flag=True, help="Only list.")
def command(dry_run: bool) -> None:
    """Remove temporary folders of runs whose process is gone; nothing else is ever left.

    Namespaces, devices and processes of a run end with it, whatever ends it. Results are not touched.

    \b
    Example:  wanbench clean --dry-run
    """
    from harness.host import stale_folders, sweep_stale

    found = stale_folders() if dry_run else sweep_stale()
    for path in found:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not found:
        click.echo("nothing to clean", err=True)
