"""wanbench exec"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness import testbeds
from wanbench.harness.cli import completion_command
from wanbench.harness.cli.options import (
    FiniteRange,
    congestion_option,
    interruptible,
    out_option,
    preset_option,
    uniform_options,
)
from wanbench.harness.errors import SpecError, as_spec_error

if TYPE_CHECKING:
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.spec.experiment import Spec
    from wanbench.harness.testbeds.base import FolderMount


# A worker's network has no DNS, about which torch's rendezvous would warn in every process.
_QUIET = {} if "TORCH_CPP_LOG_LEVEL" in os.environ else {"TORCH_CPP_LOG_LEVEL": "ERROR"}


@click.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--describe",
    is_flag=True,
    help="Run CMD alone, without a network, measure its optimizer steps, and print a [workload] table for a spec.",
)
@click.option(
    "--profile",
    shell_complete=completion_command.profiles,
    help="Catalog name, TOML or CSV file, or `uniform` (with --rtt).",
)
@click.option("-n", "--workers", type=click.IntRange(min=1), help="Number of workers, each with its own network.")
@click.option(
    "--nproc-per-node",
    "processes",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Processes per worker; they share its network.",
)
@click.option(
    "--place",
    type=click.Choice(["blocked", "round-robin"]),
    default="blocked",
    show_default=True,
    help="How ranks are placed on sites.",
)
@uniform_options
@click.option("--rate-scale", type=FiniteRange(min=0, min_open=True), help="Factor on all rates of a named profile.")
@click.option("--mtu", type=int, metavar="BYTES", help="Largest IP packet, such as 9001; default: 1500.")
@click.option(
    "--timeline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file of [[timeline]] tables: network changes and killed workers while CMD runs.",
)
@click.option(
    "--testbed",
    type=click.Choice(["netns", "docker"]),
    default="netns",
    show_default=True,
    help="What the workers run in.",
)
@click.option(
    "--emulator",
    type=click.Choice(["auto", "netem", "relay"]),
    default="auto",
    show_default=True,
    help="What makes the network slow.",
)
@click.option("--image", help="Docker only: image of the containers; default: $WANBENCH_IMAGE, or wanbench-worker.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="SOURCE[:TARGET][:rw]",
    help="Docker only: mount another folder or file, read-only without :rw. Repeatable.",
)
@click.option(
    "--workdir",
    metavar="PATH",
    help="Docker only: working folder in the image; the current folder is then not mounted.",
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set an environment variable, or pass it on. Repeatable.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="cuda: one NVIDIA GPU per process, shared if there are too few.",
)
@preset_option("stock")
@congestion_option
@click.option(
    "--collective",
    type=click.Choice(["gloo", "direct", "hierarchical", "ring"]),
    help="What carries the gloo groups of a torch program; see `process group wan` in the documentation.",
)
@click.option(
    "--rendezvous",
    type=click.Choice(["network", "local"]),
    default="network",
    show_default=True,
    help="Whether MASTER_ADDR crosses the emulated network, or is local to each worker and takes no time.",
)
@click.option("--timeout", metavar="DURATION", help="Kill CMD after this time, such as 10min, with exit code 124.")
@click.option(
    "--launcher",
    is_flag=True,
    help="Run CMD once, on worker 0. It starts the others: mpirun by itself, a script through $WANBENCH_RSH, like ssh.",
)
@click.option(
    "--private-tmp",
    is_flag=True,
    help="Give each worker a /tmp of its own, in memory; otherwise /tmp is that of this host.",
)
@click.option("--name", help="Name of the run; default: the name of the program.")
@out_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(argv: tuple[str, ...], describe: bool, **options: Any) -> None:
    """Run CMD once in every worker of an emulated network, with the environment that torchrun would set.

    \b
    Example:  wanbench exec --profile world4 -n 4 -- python train.py --epochs 1
              wanbench exec --profile uniform --rtt 100ms --rate 1Gbit -n 2 -- sh -c 'echo $RANK at $WANBENCH_SITE'
              wanbench exec --profile world4 -n 4 -- torchrun --nproc-per-node 2 train.py
              wanbench exec --profile world4 -n 4 --launcher -- mpirun -n 4 ./solver
              wanbench exec --describe -- python train.py --steps 100 > workload.toml
              wanbench exec --profile world4 -n 4 --testbed docker --image my-trainer --mount ~/data:/data \\
                            -- python train.py

    Output is prefixed with rank and site, and stored in the run's folder, which `results`, `report` and `verify` read.
    The exit code is the status of the first process that failed. Like a machine, each worker has its own host name
    (oregon-0, ...), processes, /dev/shm and TMPDIR. WANBENCH_HOSTS has the names of all workers, WANBENCH_ADDRESSES
    their addresses.

    In containers (--testbed docker), CMD uses the programs and the environment of the image. The current folder is
    mounted read-only at its own path and is the working folder, so `python train.py` finds train.py. Results are
    written to a folder mounted with :rw, or to stdout. Only --env passes variables on. Containers run as you, or as
    user 65532 if you are root: the files that they read must then be readable by all users.

    --describe needs no network and changes nothing in the script: a hook in torch's optimizers reports the steps. A
    loop with gradient accumulation calls wanbench.step() where a step ends.
    """
    if describe:
        from wanbench.harness import describe as alone
        from wanbench.harness.run.host import control_folder
        from wanbench.harness.spec.command import check_there

        check_there(argv[0], Path.cwd())
        with interruptible("nothing was measured"), control_folder() as folder:
            click.echo(alone.describe(argv, folder).to_toml(argv), nl=False)
        return
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in {"profile", "workers"} and options[parameter.name] is None:
            raise click.MissingParameter(ctx=context, param=parameter)
    context.exit(_execute(argv, options))


def _execute(argv: tuple[str, ...], options: dict[str, Any]) -> int:
    """Run the command on its network, and return the exit code."""
    from wanbench.harness.plan.cell import CommandCell
    from wanbench.harness.plan.plan import make
    from wanbench.harness.rep.command import Attended
    from wanbench.harness.rep.program import assign_gpus
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.run.attend import attend
    from wanbench.harness.run.host import ThisHost
    from wanbench.harness.run.manifest import manifest
    from wanbench.harness.spec.launch_lines import remarks

    name = f"exec-{_name(options['name'], argv)}-{time.strftime('%Y%m%d-%H%M%S')}"
    mounts, cwd = _files(options)
    timeout_s = _timeout(options["timeout"])
    environment = _QUIET | dict(filter(None, map(_variable, options["environment"])))
    try:
        plan = make(_spec(argv, options), "exec", ThisHost())
    except SpecError as error:
        raise SpecError(_in_options(str(error), options["timeline"])) from None
    (cell,) = [cell for cell in plan.cells if not cell.is_baseline]
    assert isinstance(cell, CommandCell)
    _check_host(argv[0], cwd, cell, options["image"])
    explained = [] if options["launcher"] else [*remarks(cell.command, cell.node(cell.workers))]
    gpus = assign_gpus(cell.workers, options["processes"]) if options["device"] == "cuda" else ()
    folder = RunFolder.new(options["out"], name)
    for line in (
        f"{cell.workers} workers at {', '.join(dict.fromkeys(cell.placement))}; "
        f"testbed {cell.testbed}, emulator {cell.emulator}, {_tcp(cell)}",
        *explained,
    ):
        _say(line)
    attended = Attended(_say, cwd, environment, mounts, gpus, options["private_tmp"], 0, timeout_s, options["launcher"])
    with interruptible("the program did not run to its end"), folder.lock():
        folder.prepare(None, replace(plan, cells=(cell,)).to_json(), manifest([cell]))
        return attend(cell, attended, folder)


def _tcp(cell: Cell) -> str:
    from wanbench.harness.spec.tables import TUNED
    from wanbench.harness.text import size

    tcp = cell.tcp
    most = "" if tcp.host == TUNED else f" (at most {size(cell.repetition(0).host_tcp.in_flight)} in flight)"
    return f"TCP {tcp.congestion}, {tcp.host}{most}"


def _timeout(text: str | None) -> float | None:
    """Parse --timeout, which can be in minutes. Raises: SpecError."""
    from wanbench.netprofiles import Delay

    if text is None:
        return None
    minutes = re.fullmatch(r"([\d.]+) ?min", text)
    with as_spec_error("--timeout", ValueError):
        seconds = 60 * Delay.parse(f"{minutes[1]}s").seconds if minutes else Delay.parse(text).seconds
    if seconds == 0:
        raise SpecError(f"--timeout {text}: expected more than zero, such as 10min")
    return seconds


def _say(line: str) -> None:
    click.echo(f"wanbench: {line}", err=True)


def _spec(argv: tuple[str, ...], options: dict[str, Any]) -> Spec:
    """One command on one network. Raises: SpecError."""
    from wanbench.harness.spec.experiment import Spec
    from wanbench.harness.timeline.schedule import read_timeline

    name = options["profile"]
    if name != "uniform" and (options["rtt"] or options["rate"]):
        raise SpecError(f"--rtt and --rate go with --profile uniform; {name} has its own (--rate-scale scales)")
    network = {key: options[key] for key in ("profile", "rtt", "rate", "rate_scale", "mtu", "place") if options[key]}
    data = {
        "schema": 1,
        "name": "exec",
        "workload": {
            "command": [argument.replace("{", "{{").replace("}", "}}") for argument in argv],
            "nproc_per_worker": options["processes"],
            "rendezvous": options["rendezvous"],
        },
        "network": network | {"tcp": {key: options[key] for key in ("preset", "congestion")}},
        "sweep": {"workers": [options["workers"]]},
        "run": {"testbed": options["testbed"], "emulator": options["emulator"], "repeats": 1},
    }
    if options["image"]:
        data["containers"] = {"image": options["image"]}
    if options["collective"]:
        if options["device"] == "cuda":
            raise SpecError("--collective: not with --device cuda; the process group wan is for tensors on a CPU")
        data["comm"] = {"collective": options["collective"]}
    if options["timeline"]:
        data["timeline"] = read_timeline(options["timeline"])
    return Spec.from_dict(data, "exec")


def _in_options(message: str, timeline: Path | None) -> str:
    """A message about the spec, in the words of what the user gave."""
    message = re.sub(r"^exec: (?=timeline)", lambda _: f"{timeline}: ", message)
    return re.sub(r"^exec: network\.(\w+)", lambda key: f"--{key[1].replace('_', '-')}", message)


def _files(options: dict[str, Any]) -> tuple[tuple[FolderMount, ...], Path]:
    """The folders of this host that containers see, and the working folder. Raises: SpecError."""
    from wanbench.harness.testbeds.docker import mounts

    image, workdir = options["image"], options["workdir"]
    if options["testbed"] != "docker":
        for option, value in (("--image", image), ("--mount", options["mounts"]), ("--workdir", workdir)):
            if value:
                raise SpecError(f"{option}: needs --testbed docker; on {options['testbed']} programs see this host")
        return (), Path.cwd()
    if workdir is not None and not Path(workdir).is_absolute():
        raise SpecError(f"--workdir {workdir}: expected an absolute path in the image, such as /app")
    if workdir is None and testbeds.adopted() is not None:
        raise SpecError("--workdir: required here: containers that already run cannot see the current folder")
    own = [mounts.current(Path.cwd())] if workdir is None else []
    # --mount .:rw makes the current folder writable.
    folders = {mount.target: mount for mount in [*own, *map(mounts.parse, options["mounts"])]}
    return tuple(folders.values()), Path(workdir) if workdir is not None else Path.cwd()


def _variable(text: str) -> tuple[str, str] | None:
    """Parse NAME=VALUE, or take NAME from this process's environment if set, as `docker run --env` does."""
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise SpecError(f"--env {f'{name}=***'!r}: expected NAME=VALUE, or the NAME of a variable to pass on")
    given = value if equals else os.environ.get(name)
    return None if given is None else (name, given)


def _name(given: str | None, argv: tuple[str, ...]) -> str:
    """The name of the run: the option, or one made from the name of the program. Raises: SpecError."""
    if given is None:
        return re.sub(r"[^A-Za-z0-9._]+", "-", Path(argv[0]).stem).strip("-.")[:40] or "program"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", given):
        raise SpecError(f"--name {given}: expected letters, digits, '.', '_' and '-', at most 80")
    return given


def _check_host(program: str, cwd: Path, cell: Cell, image: str | None) -> None:
    from wanbench.harness.emulators import choice
    from wanbench.harness.spec.command import check_there

    if not testbeds.contained(cell.testbed):
        check_there(program, cwd)
    if cell.emulator is not None:
        choice.check(cell.emulator, testbeds.home_of(cell.testbed))
    testbeds.check(cell.testbed, [image])
