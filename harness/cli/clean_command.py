"""wanbench clean"""

from contextlib import closing

import click


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="List what would be removed.")
def command(dry_run: bool) -> None:
    """Remove temporary folders and containers of runs whose process is gone; nothing else can remain.

    The namespaces, devices and processes of a run always end with it. Containers are found by their label
    org.wanbench.run, never by name. Results are not touched.

    \b
    Example:  wanbench clean --dry-run
    """
    from wanbench.harness.errors import HostError
    from wanbench.harness.run.host import stale_folders, sweep_stale

    removed = [str(path) for path in (stale_folders() if dry_run else sweep_stale())]
    try:
        removed += [f"container {name}" for name in _containers(dry_run)]
    except HostError as error:
        click.echo(f"wanbench: containers were not checked: {error}", err=True)
    for name in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {name}")
    if not removed:
        click.echo("nothing to clean", err=True)


def _containers(dry_run: bool) -> list[str]:
    """Remove stale containers unless `dry_run`, and return their names. Raises: HostError."""
    from wanbench.harness.testbeds.docker.daemon import is_there, stale, sweep, usable

    if not is_there():
        return []
    with closing(usable()) as daemon:
        containers = stale(daemon) if dry_run else sweep(daemon)
    return sorted(container["Names"][0].removeprefix("/") for container in containers)
