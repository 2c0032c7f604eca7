"""wanbench advise"""

import csv
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from wanbench.harness.cli import completion_command, terminal
from wanbench.harness.cli.options import (
    KEPT,
    FiniteRange,
    interruptible,
    json_option,
    preset_option,
    question_options,
    uniform_options,
)
from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.netprofiles import Size, UnitError, did_you_mean


@click.command("advise")
@click.argument("profile", metavar="PROFILE", shell_complete=completion_command.profiles)
@click.option("--workers", type=click.IntRange(min=2), help="Number of workers; default: one on each site.")
@click.option("--place", metavar="SITE=N,...", help="Number of workers on each site.")
@uniform_options
@click.option(
    "--target-loss",
    type=FiniteRange(min=0, min_open=True),
    help="Compare the time to this training loss, not to an accuracy.",
)
@click.option("--memory", metavar="SIZE", help="Largest memory of a worker for parameters and messages, e.g. 2GiB.")
@click.option("--exclude", multiple=True, metavar="KIND", help="Leave out an algorithm. Repeatable.")
@click.option(
    "--emulate",
    type=click.IntRange(0, 10),
    default=3,
    show_default=True,
    help="Number of settings to emulate; 0 takes seconds instead of minutes.",
)
@click.option(
    "--budget",
    type=FiniteRange(min=0, min_open=True),
    default=30,
    show_default=True,
    metavar="MINUTES",
    help="Time on this host for learn.toml, which measures the accuracy of the fastest settings with your own model.",
)
@preset_option("tuned")
@json_option
@question_options
def command(profile: str, workload: str, workers: int | None, out: Path, as_json: bool, **options: Any) -> None:
    """Find the fastest way to train on the network PROFILE: a catalog name, a TOML or CSV file, or `uniform`.

    All settings are ranked by the step-time law, the best are measured on the simulated clock, and the first three are
    emulated. A setting is advised only if its accuracy is known: it has the mathematics of ssgd, or was recorded in
    the learning library (`wanbench list learning`). The same command resumes.

    \b
    Example:  wanbench advise world4 --emulate 0
              wanbench advise uniform --rtt 80ms --rate 1Gbit --workers 8 --workload my_pkg.model:make
              wanbench advise uniform --rtt 60ms --rate 1Gbit --workers 2 --workload gpt-1b,gpus=16,device=h100
    """
    from wanbench.harness.advise.answer import answer, text, to_json, write
    from wanbench.harness.advise.between_sites import SiteAnswer, ways
    from wanbench.harness.advise.evidence import Library
    from wanbench.harness.advise.question import Limits, ask
    from wanbench.harness.advise.search import Options, search
    from wanbench.harness.advise.site import site_of
    from wanbench.harness.show.grid import width_of_output

    with interruptible(KEPT):
        limits = Limits(
            options["drop"] / 100, options["target_loss"], _bytes(options["memory"]), _kinds(options["exclude"])
        )
        question = ask(_network(profile, options), workload, workers, limits)
        if (site := site_of(workload)) is not None:
            for name in {"target_loss", "memory", "proxy"} & {key for key, value in options.items() if value}:
                raise SpecError(f"--{name.replace('_', '-')}: not for {site.workload}: only its speed is predicted")
            sites = SiteAnswer(question, site, ways(question, site))
            written, plain, show = sites.write(out / question.spec.name), sites.to_json(), sites.text
        else:
            library = Library.for_question(question, options["proxy"], out)
            say = partial(click.echo, err=True)
            ranking = search(question, library, Options(out, options["emulate"], options["fresh"], say))
            advice = answer(ranking, options["budget"])
            written, plain, show = write(advice, out / question.spec.name), to_json(advice), partial(text, advice)
        if as_json:
            click.echo(json.dumps(plain, indent=1, allow_nan=False))
        else:
            terminal.show(show([str(path) for path in written], width_of_output()))


def _network(profile: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The table `network` of a spec. Raises: SpecError."""
    network: dict[str, Any] = {"profile": profile, "tcp": {key: options[key] for key in ("preset", "congestion")}}
    network |= {key: options[key] for key in ("rtt", "rate") if options[key] is not None}
    if options["place"] is not None:
        network["place"] = _placement(options["place"])
    return network


def _placement(text: str) -> dict[str, int]:
    workers: dict[str, int] = {}
    for part in next(csv.reader([text], skipinitialspace=True), [""]):  # a name with a comma is in quotes
        site, equals, number = part.rpartition("=")
        if not equals or not number.strip().isdecimal():
            raise SpecError(f"--place {text}: {part!r}: expected SITE=N, as in oregon=2,tokyo=2")
        workers[site.strip()] = int(number)
    return workers


def _bytes(text: str | None) -> float | None:
    if text is None:
        return None
    with as_spec_error("--memory", UnitError):
        return float(Size.parse(text).bytes)


def _kinds(exclude: tuple[str, ...]) -> frozenset[str]:
    from wanbench.workloads.algorithms import registry

    for kind in exclude:
        if kind not in registry.kinds():
            raise SpecError(f"--exclude {kind}: no such algorithm{did_you_mean(kind, registry.kinds())}")
    return frozenset(exclude)
