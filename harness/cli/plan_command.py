"""wanbench plan"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import (
    SpecRequest,
    jobs_option,
    json_option,
    planned,
    spec_options,
)
from wanbench.harness.errors import SpecError

if TYPE_CHECKING:
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.plan.plan import Plan
    from wanbench.harness.results.store import RunFolder


@click.command("plan")
@spec_options
@jobs_option
@json_option
@click.option("--tc", "as_tc", is_flag=True, help="Print only the ip and tc commands that build each network.")
def command(request: SpecRequest, jobs: int | None, as_json: bool, as_tc: bool) -> None:
    """Show what `run` would do for SPEC: a TOML file, a built-in name, or - for standard input.

    Each cell has the step time that the step-time law predicts, and why it runs or not. The first line has the time
    that the run takes.

    \b
    Example:  wanbench plan latency-sweep --only rtt=100ms
    """
    if as_json and as_tc:
        raise SpecError("--json and --tc: choose one")
    _, plan, cells = planned(request, resumed=True)
    if as_tc:
        _print_tc(cells)
    else:
        _print_work(plan, cells, request.out, jobs, as_json)


def _print_work(plan: Plan, cells: list[Cell], out: Path, jobs: int | None, as_json: bool) -> None:
    """Print what is left to run, and how long it takes."""
    from wanbench.harness.plan.load import makespan, slots_for
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.run.host import ThisHost, workload_explained
    from wanbench.harness.spec.tables import TUNED
    from wanbench.workloads.comm.blocks import MTU

    spec, explained = plan.spec, [*workload_explained(plan)]  # or refused, whatever is printed
    folder = RunFolder(out / spec.name)
    lines = [_line(cell, folder, spec.run.repeats) for cell in cells]
    todo = [cell.load for cell, line in zip(cells, lines, strict=True) for _ in range(line["to_run"])]
    todo.sort(key=lambda load: -load.seconds)
    predictable = all(cell.trains for cell in cells) or not todo
    host = ThisHost().capacity()
    seconds = makespan(todo, slots_for(todo, jobs, host), host) if predictable else None
    if as_json:
        scales = {cell.rate_scale for cell in cells}
        scale = {"payload_scale": scales.pop() if len(scales) == 1 else None, "why_scale": plan.why_scale}
        click.echo(json.dumps({"run": str(folder.path), **scale, "cells": lines, "predicted_s": seconds}, indent=1))
        return
    packets = [f"network.mtu: packets have up to {mtu} bytes" for mtu in sorted({cell.mtu for cell in cells} - {MTU})]
    stock = sorted({cell.tcp.host for cell in cells if not cell.is_baseline} - {TUNED})
    hosts = [f"network.tcp: hosts have the buffers of {host}, so a window can limit a connection" for host in stock]
    notes = [*explained, *packets, *hosts, *filter(None, [plan.unequal_steps])]
    _print(spec.name, spec.run.repeats, lines, len(todo), seconds, notes)


def _print_tc(cells: list[Cell]) -> None:
    """Print the commands for every distinct network, even if this host cannot run them."""
    from wanbench.harness.emulators.netem.plan import commands

    networks = [(cell.slug, cell.emulated_network) for cell in cells if not cell.is_baseline]
    for key, network in {network.key(): network for _, network in networks}.items():
        click.echo(f"# {', '.join(name for name, other in networks if other.key() == key)}")
        for line in commands(network):
            click.echo(line)


def _line(cell: Cell, folder: RunFolder, repeats: int) -> dict[str, Any]:
    from wanbench.harness.timeline.changes import described

    missing = [rep for rep in range(repeats) if not folder.is_finished(cell, rep)]
    failed = [row for rep in missing for row in folder.failures(cell, rep)[-1:]]
    why = {0: "finished", repeats: "new"}.get(len(missing), "some repetitions are missing")
    return {
        "cell": cell.slug,
        "algorithm": cell.label,
        "workers": cell.workers,
        "axes": dict(cell.axes),
        "timeline": described(cell.changes),
        **cell.forecast(),
        "law_gap": cell.law_gap,
        "to_run": len(missing),
        "why": f"failed before: {failed[-1]['reason']}" if failed else why,
    }


def _print(
    name: str, repeats: int, lines: list[dict[str, Any]], todo: int, seconds: float | None, notes: list[str]
) -> None:
    from wanbench.harness.run.progress import clock
    from wanbench.harness.show.grid import aligned

    took = "as long as the command takes" if seconds is None else f"about {clock(seconds)}"
    text = [f"{name}: {len(lines)} cells x {repeats} = {len(lines) * repeats} reps; {todo} to run, {took}", *notes]
    text += [
        f"timeline: {timeline}"
        for timeline in dict.fromkeys(line["timeline"] for line in lines)
        if timeline is not None
    ]
    entries = [
        [
            line["cell"],
            str(line["steps"] or "-"),
            "unknown" if line["predicted_step_time_s"] is None else f"{line['predicted_step_time_s']:.3f}",
            line["bound"] or "-",
            f"{line['to_run']}  {line['why']}",
        ]
        for line in lines
    ]
    text.append(aligned(["cell", "steps", "law s/step", "bound by", "to run", ""], entries).removesuffix("\n"))
    gaps = Counter(line["law_gap"] for line in lines if line["law_gap"] is not None)
    text += [f"law unknown for {count} cell{'s' * (count > 1)}: {reason}" for reason, count in gaps.items()]
    terminal.show("\n".join(text))
