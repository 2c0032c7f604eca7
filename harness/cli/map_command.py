"""wanbench map"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from wanbench.harness.cli import terminal
from wanbench.harness.cli.options import KEPT, interruptible, question_options
from wanbench.harness.errors import SpecError, as_spec_error


@click.command("map")
@click.option("--workers", type=click.IntRange(min=2), default=4, show_default=True, help="Number of workers.")
@click.option("--rtts", default="1ms,400ms", show_default=True, metavar="LOW,HIGH", help="Round-trip times.")
@click.option("--rates", default="10Mbit,10Gbit", show_default=True, metavar="LOW,HIGH", help="Rates of each worker.")
@click.option("--here", metavar="RTT,RATE", help="Your network, as a point, e.g. 80ms,1Gbit.")
@question_options
def command(workload: str, workers: int, out: Path, **options: Any) -> None:
    """Draw which setting is the fastest to equal accuracy on each network, and what it gains over ssgd.

    Settings are those whose accuracy is known, as for `wanbench advise`. The figure and its points are written to the
    run's folder, which is the last line on stdout.

    \b
    Example:  wanbench map --workload resnet50-v100 --workers 4
              wanbench map --workload params=125e6,tensors=148,step_time=400ms --here 80ms,1Gbit
    """
    from wanbench.harness.advise.evidence import Library
    from wanbench.harness.advise.map import draw_up
    from wanbench.harness.advise.question import Limits, ask
    from wanbench.harness.advise.search import Options
    from wanbench.harness.advise.site import site_of
    from wanbench.harness.show.figures.map import write_map
    from wanbench.netprofiles import Delay, Rate

    rtts, rates, here = options["rtts"], options["rates"], options["here"]
    with interruptible(KEPT):
        low_ms, high_ms = (delay.ms for delay in _two("--rtts", rtts, Delay.parse))
        low_mbit, high_mbit = (rate.mbit for rate in _two("--rates", rates, Rate.parse))
        if not (0 < low_ms < high_ms and low_mbit < high_mbit):
            raise SpecError(f"--rtts {rtts}, --rates {rates}: expected the lower value first, above zero")
        if site_of(workload) is not None:
            raise SpecError(
                f"--workload {workload}: a worker is a site of GPUs, so there is no map; use `wanbench advise`"
            )
        rtt, rate = here.partition(",")[::2] if here else (f"{(low_ms * high_ms) ** 0.5:.3f}ms", "1Gbit")
        tcp = {"congestion": options["congestion"]}
        network = {"profile": "uniform", "rtt": rtt.strip(), "rate": rate.strip(), "tcp": tcp}
        question = ask(network, workload, workers, Limits(options["drop"] / 100))
        library = Library.for_question(question, options["proxy"], out)
        say = Options(out, 0, options["fresh"], partial(click.echo, err=True))
        drawn = draw_up(question, library, (low_ms, high_ms), (low_mbit, high_mbit), say, marked=bool(here))
        folder = out / f"{question.spec.name}-map"
        for path in write_map(drawn, folder):
            click.echo(path, err=True)
        terminal.show(drawn.title.partition("\n")[0], err=True)
        click.echo(folder)


def _two(option: str, text: str, parse: Any) -> tuple[Any, Any]:
    """Two quantities separated by a comma. Raises: SpecError."""
    with as_spec_error(f"{option} {text}: expected LOW,HIGH", ValueError):  # also UnitError
        low, high = (parse(part.strip()) for part in text.split(","))
    return low, high
