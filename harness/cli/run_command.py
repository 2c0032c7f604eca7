"""wanbench run"""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import (
    KEPT,
    SpecRequest,
    by_hosts,
    fresh_option,
    interruptible,
    jobs_option,
    keep_option,
    planned,
    spec_options,
)
from wanbench.harness.errors import CellsFailed, SpecError

if TYPE_CHECKING:
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.run.together import Cluster
    from wanbench.harness.spec.experiment import Spec


@click.command("run")
@spec_options
@jobs_option
@fresh_option
@keep_option
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="ray measures on all nodes of a Ray cluster; results come to this host.",
)
@click.option("--address", help="With --engine ray: the cluster. Default: RAY_ADDRESS, or a new one on this host.")
@click.option("--no-figures", is_flag=True, help="Do not draw figures.")
def command(
    request: SpecRequest,
    jobs: int | None,
    fresh: bool,
    keep: bool,
    engine: str,
    address: str | None,
    no_figures: bool,
) -> None:
    """Run the experiment SPEC: a TOML file, a built-in name, or - for standard input.

    Finished repetitions are not run again, so the same command resumes an interrupted run. The last line on stdout is
    the run's folder. Progress, the best algorithm of every network and the next commands are printed on stderr.

    \b
    Example:  wanbench run smoke
              wanbench run latency-sweep --set run.repeats=1 --only algorithm=ssgd --only rtt=100ms
              wanbench run latency-sweep --set network.profile=world4 --drop sweep.rtt --set 'sweep.workers=[2, 4]'
    """
    from wanbench.harness.results.store import RunFolder

    if fresh and keep:
        raise SpecError("--fresh and --keep: choose one")
    with interruptible(KEPT):
        text, plan, cells = planned(request, resumed=not fresh)
        folder = RunFolder(request.out / plan.spec.name)

        from wanbench.harness.run.together import measure_all

        tally = measure_all(plan, folder, cells=cells, text=text, jobs=jobs, fresh=fresh, keep=keep,
                            draw=not no_figures, cluster=_cluster(engine, address))  # fmt: skip
    if tally.ok or not tally.failed:
        _conclude(folder, request.out, None if request.assignments or request.drop else plan.spec)
    click.echo(folder.path)
    if tally.failed:
        raise CellsFailed(_missing(folder, tally.failed))


def _cluster(engine: str, address: str | None) -> Cluster | None:
    """What measures on a cluster; None if this host does. Raises: SpecError, HostError."""
    if engine == "local":
        if address is not None:
            raise SpecError("--address: needs --engine ray")
        return None
    from wanbench.harness.run.ray_engine import measure

    return partial(measure, address=address)


def _conclude(folder: RunFolder, out: Path, spec: Spec | None) -> None:
    """Report the best algorithm of every network, and the commands to use next.

    Args:
        spec: as stored in the folder; None if options changed it.
    """
    from wanbench.harness.show.best import best_text

    rows = by_hosts(folder.rows(), across_hosts=False)
    decision = best_text(rows)
    if not decision:
        return
    name = shlex.quote(folder.name) + ("" if out == Path("results") else f" --out {shlex.quote(str(out))}")
    commands = [
        (f"report {name}", "figures and tables on one page"),
        (f"results {name} --format pivot", "scalability by algorithm"),
        (f"verify {name}", "may these numbers be published?"),
    ]
    if spec is not None and all(row["accuracy"] is None for row in rows):
        asked = _advice(folder, spec, max(row["workers"] for row in rows))
        commands += [(asked, "what is fastest to equal accuracy")] if asked else []
    width = max(len(text) for text, _ in commands)
    terminal.show(f"\n{decision}", err=True)
    for index, (text, about) in enumerate(commands):
        click.echo(f"{'Next:' if not index else '':5} wanbench {text:{width}}  {about}", err=True)


def _advice(folder: RunFolder, spec: Spec, workers: int) -> str:
    """The command that compares all settings for the same workload, on its network or on a map; "" if none can."""
    if spec.workload.command is not None or spec.workload.step_time == "real":
        return ""
    workload = f"--workload {shlex.quote(str(folder.path / 'spec.toml'))}"
    if spec.network.profile == "uniform" or {"profile", "network.profile"} & spec.sweep.keys():
        return f"map {workload} --workers {workers}"
    if {"rtt_scale", "rate_scale", "place"} & spec.network.model_fields_set:
        return ""
    return f"advise {shlex.quote(spec.network.profile)} {workload} --workers {workers}"


def _missing(folder: RunFolder, failed: list[str]) -> str:
    """Name the cells without a valid result, and what to do about them."""
    statuses = {str(row["cell"]): row["status"] for row in folder.rows()}
    invalid = [cell for cell in dict.fromkeys(failed) if statuses.get(cell) == "invalid"]
    broken = [cell for cell in dict.fromkeys(failed) if cell not in invalid]
    count = "1 repetition has" if len(failed) == 1 else f"{len(failed)} repetitions have"
    remarks = [
        f"{count} no valid result",
        f"failed: {', '.join(broken)} (logs: {folder.path}/cells/CELL/)" if broken else "",
        f"invalid, because this host could not keep up: {', '.join(invalid)} (try --jobs 1)" if invalid else "",
        "the same command runs only these again",
    ]
    return "; ".join(filter(None, remarks))
