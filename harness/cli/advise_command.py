"""wanbench advise"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click

from wanbench.harness.cli import completing, terminal
from wanbench.harness.cli.options import KEPT, FiniteRange, interruptible, question_options
from wanbench.harness.errors import SpecError


@click.command("advise", short_help="Find the fastest algorithm, settings and collective for a network and a model.")
@click.argument("profile", metavar="PROFILE", shell_complete=completing.profiles)
@click.option("--workers", type=click.IntRange(min=2), help="Number of workers; default: one on each site.")
@click.option("--place", metavar="SITE=N,...", help="Number of workers on each site.")
@click.option("--rtt", help="Uniform only: round-trip time, e.g. 100ms.")
@click.option("--rate", help="Uniform only: rate of each worker's link, e.g. 100Mbit.")
@click.option(
    "--target-loss", type=FiniteRange(min=0, min_open=True), help="Compare the time to this training loss instead."
)
@click.option("--memory", metavar="SIZE", help="Largest memory of a worker for parameters and messages, e.g. 2GiB.")
@click.option("--exclude", multiple=True, metavar="KIND", help="Leave out an algorithm. Repeatable.")
@click.option(
    "--emulate", type=click.IntRange(0, 10), default=3, show_default=True, help="Number of settings to emulate."
)
@click.option(
    "--budget",
    type=FiniteRange(min=0, min_open=True),
    default=30,
    show_default=True,
    metavar="MINUTES",
    help="Time on this host for learn.toml, which measures the accuracy of the fastest settings with your own model.",
)
@click.option("--no-emulate", is_flag=True, help="Same as --emulate 0: seconds instead of minutes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@question_options
def command(profile: str, workload: str, workers: int | None, out: Path, as_json: bool, **options: Any) -> None:
    """Find the fastest way to train on the network PROFILE: a catalog name, a TOML or CSV file, or `uniform`.

    All settings are ranked by the step-time law, the best are measured on the simulated clock, and the first three are
    emulated. A setting is advised only if its accuracy is known: it has the mathematics of ssgd, or was recorded in
    the learning library (`wanbench list learning`). The same command resumes.

    \b
    Example:  wanbench advise world4 --no-emulate
              wanbench advise home-fibre --workload params=125e6,tensors=148,step_time=400ms
              wanbench advise uniform --rtt 80ms --rate 1Gbit --workers 8 --workload my_pkg.model:make
    """
    with interruptible(KEPT):
        _advise(profile, workload, workers, out, as_json, **options)


def _advise(
    profile: str,
    workload: str,
    workers: int | None,
    out: Path,
    as_json: bool,
    *,
    place: str | None,
    rtt: str | None,
    rate: str | None,
    congestion: str,
    drop: float,
    target_loss: float | None,
    memory: str | None,
    exclude: tuple[str, ...],
    proxy: tuple[str, ...],
    emulate: int,
    no_emulate: bool,
    budget: float,
    fresh: bool,
) -> None:
    from wanbench.harness.advise.answer import answer, text, to_json, write
    from wanbench.harness.advise.evidence import Library
    from wanbench.harness.advise.question import Limits, ask
    from wanbench.harness.advise.search import Options, search
    from wanbench.harness.show.grid import width_of_output

    network: dict[str, Any] = {"profile": profile, "tcp": {"congestion": congestion}}
    network |= {key: value for key, value in (("rtt", rtt), ("rate", rate)) if value is not None}
    if place is not None:
        network["place"] = _places(place)
    limits = Limits(drop / 100, target_loss, _bytes(memory), _kinds(exclude))
    question = ask(network, workload, workers, limits)
    library = Library.for_question(question, proxy, out)
    found = search(
        question,
        library,
        Options(out, 0 if no_emulate else emulate, fresh, lambda line: click.echo(line, err=True)),
    )
    given = answer(found, budget)
    folder = out / question.spec.name
    written = write(given, folder)
    if as_json:
        click.echo(json.dumps(to_json(given), indent=1, allow_nan=False))
    else:
        terminal.show(text(given, [str(path) for path in written], width_of_output()))


def _places(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in next(csv.reader([text], skipinitialspace=True), [""]):  # a name with a comma is in quotes
        site, equals, number = part.rpartition("=")
        if not equals or not number.strip().isdecimal():
            raise SpecError(f"--place {text}: {part!r}: expected SITE=N, as in oregon=2,tokyo=2")
        found[site.strip()] = int(number)
    return found


def _bytes(text: str | None) -> float | None:
    from wanbench.netprofiles import Size, UnitError

    if text is None:
        return None
    try:
        return float(Size.parse(text).bytes)
    except UnitError as error:
        raise SpecError(f"--memory: {error}") from None


def _kinds(exclude: tuple[str, ...]) -> frozenset[str]:
    from wanbench.netprofiles import did_you_mean
    from wanbench.workloads.algorithms import registry

    for kind in exclude:
        if kind not in registry.kinds():
            raise SpecError(f"--exclude {kind}: no such algorithm{did_you_mean(kind, registry.kinds())}")
    return frozenset(exclude)
