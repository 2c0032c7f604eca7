"""wanbench exec"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wanbench.harness.cli import completing
from wanbench.harness.cli.options import out_option
from wanbench.harness.errors import HostError, SpecError

if TYPE_CHECKING:
    from wanbench.harness.rep.program import Ended, Program
    from wanbench.harness.testbeds.base import FolderMount
    from wanbench.harness.timeline.schedule import Schedule
    from wanbench.netprofiles import Profile


@click.command(
    "exec",
    short_help="Run any program on an emulated network, as torchrun would.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--profile",
    required=True,
    shell_complete=completing.profiles,
    help="Catalog name, TOML or CSV file, or `uniform` (with --rtt).",
)
@click.option("-n", "--workers", type=click.IntRange(min=1), required=True, help="Workers, each with its own network.")
@click.option(
    "--nproc-per-node",
    "processes",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Processes in each worker's network.",
)
@click.option("--place", default="blocked", show_default=True, help="blocked or round-robin: how ranks go to sites.")
@click.option("--rtt", help="uniform: round-trip time, e.g. 100ms.")
@click.option("--rate", help="uniform: each worker's own link, e.g. 100Mbit.")
@click.option("--rate-scale", type=click.FloatRange(min=0, min_open=True), help="Multiply all rates.")
@click.option(
    "--timeline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file of [[timeline]] tables: what changes while CMD runs, and who is killed.",
)
@click.option("--testbed", default="netns", show_default=True, help="netns or docker.")
@click.option("--emulator", default="auto", show_default=True, help="auto, netem or relay.")
@click.option("--image", help="docker: the containers' image; default: $WANBENCH_IMAGE, or wanbench-worker.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="SOURCE[:TARGET][:rw]",
    help="docker: another folder or file that containers see, read-only without :rw. Repeatable.",
)
@click.option(
    "--workdir",
    metavar="PATH",
    help="docker: working folder in the image; the current one is then not mounted.",
)
@click.option(
    "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="Set or pass on a variable. Repeatable."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="cuda: one NVIDIA GPU for each process, shared among workers if there are too few.",
)
@click.option("--congestion", default="reno", show_default=True, help="TCP's congestion control.")
@click.option("--name", help="Name of the run; default: the program's.")
@out_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(argv: tuple[str, ...], out: Path, name: str | None, **options: Any) -> None:
    """Run CMD once in every worker of an emulated network, with the environment that torchrun would set.

    \b
    Example:  wanbench exec --profile world4 -n 4 -- python train.py --epochs 1
              wanbench exec --profile uniform --rtt 100ms --rate 1Gbit -n 2 -- sh -c 'echo $RANK at $WANBENCH_SITE'
              wanbench exec --profile world4 -n 4 --testbed docker --image my-trainer --mount ~/data:/data \\
                            -- python train.py

    Output is prefixed with rank and site, and kept in the run's folder. Exits with the status of the first process
    that failed. The rendezvous (MASTER_ADDR) does not cross the emulated network; WANBENCH_ADDRESSES names all
    workers' addresses on it.

    In containers (--testbed docker) CMD meets the image's programs and environment. The current folder is mounted
    read-only at its own path and is the working folder, so `python train.py` finds train.py; results go where --mount
    ends in :rw, or to stdout. Variables are passed on by --env only. Containers run as you, or as user 65532 if you are
    root: what they read must then be readable by all.
    """
    from wanbench.harness.rep.program import execute
    from wanbench.harness.results.store import write_json
    from wanbench.harness.run.manifest import manifest
    from wanbench.harness.run.session import control_folder

    name = _name(name, argv)
    program = _program(argv, options)
    _check_host(program)
    folder = out / f"exec-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise HostError(f"{folder}: cannot write results here ({error.strerror}); use --out") from None
    write_json(folder / "manifest.json", manifest([]))
    say = _say
    say(f"{program.workers} workers at {', '.join(dict.fromkeys(program.sites))}; "
        f"testbed {program.testbed}, emulator {program.emulator}")  # fmt: skip
    with control_folder() as control:
        ended = execute(program, folder, control, say)
    row = _row(program, ended)
    write_json(folder / "result.json", row)
    network = {
        "configured": program.network().to_json(),
        "probe": ended.probe,
        "emulator": ended.stats,
        "tcp": ended.tcp,
    }
    write_json(folder / "network.json", network)
    failed = "" if ended.failed is None else f"rank {ended.failed} failed with status {ended.code}; "
    say(f"{failed}{ended.seconds:.1f} s, {row['wire_bytes'] / 1e6:.1f} MB on the wire; {folder}")
    click.get_current_context().exit(ended.code)


def _say(line: str) -> None:
    click.echo(f"wanbench: {line}", err=True)


def _program(argv: tuple[str, ...], options: dict[str, Any]) -> Program:
    from wanbench.harness import testbeds
    from wanbench.harness.emulators import choice
    from wanbench.harness.rep.gpus import dealt
    from wanbench.harness.rep.program import Program, placed
    from wanbench.netprofiles import PlacementError

    profile = _profile(options)
    try:
        sites = placed(profile, options["workers"], options["place"])
    except PlacementError as error:
        raise SpecError(f"--place: {error}") from None
    testbed = options["testbed"]
    emulator = choice.chosen(testbeds.home_of(testbed))[0] if options["emulator"] == "auto" else options["emulator"]
    mounts, cwd = _files(options)
    return Program(
        argv=argv,
        profile=profile,
        sites=sites,
        processes=options["processes"],
        cwd=cwd,
        testbed=testbed,
        emulator=emulator,
        tcp={"congestion": options["congestion"], "slow_start_after_idle": True},
        image=options["image"],
        schedule=_schedule(options["timeline"], profile, sites),
        environment=dict(filter(None, map(_variable, options["environment"]))),
        mounts=mounts,
        gpus=dealt(len(sites), options["processes"]) if options["device"] == "cuda" else (),
    )


def _schedule(path: Path | None, profile: Profile, sites: tuple[str, ...]) -> Schedule | None:
    if path is None:
        return None
    from wanbench.harness.emulators.plan import build
    from wanbench.harness.timeline.file import read_timeline, schedule_for_program

    return schedule_for_program(read_timeline(path), build(profile, sites), profile, str(path))


def _files(options: dict[str, Any]) -> tuple[tuple[FolderMount, ...], Path]:
    """What of this host containers see, and the working folder."""
    from wanbench.harness import testbeds
    from wanbench.harness.testbeds.docker import mounts

    image, workdir = options["image"], options["workdir"]
    if options["testbed"] != "docker":
        for option, value in (("--image", image), ("--mount", options["mounts"]), ("--workdir", workdir)):
            if value:
                raise SpecError(f"{option} goes with --testbed docker; on {options['testbed']} programs see this host")
        return (), Path.cwd()
    if workdir is not None and not Path(workdir).is_absolute():
        raise SpecError(f"--workdir {workdir}: expected an absolute path in the image, such as /app")
    if workdir is None and testbeds.adopted() is not None:
        raise SpecError("--workdir: needed here, where containers that are there already cannot see the current folder")
    own = [mounts.current(Path.cwd())] if workdir is None else []
    asked = [mounts.parse(text) for text in options["mounts"]]
    folders = {mount.target: mount for mount in [*own, *asked]}  # --mount .:rw makes the current folder writable
    return tuple(folders.values()), Path(workdir) if workdir is not None else Path.cwd()


def _variable(text: str) -> tuple[str, str] | None:
    """NAME=VALUE, or this process's value of NAME if it has one, as `docker run --env` does."""
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise SpecError(f"--env {text!r}: expected NAME=VALUE, or the NAME of a variable to pass on")
    if not equals:
        return (name, os.environ[name]) if name in os.environ else None
    return name, value


def _name(given: str | None, argv: tuple[str, ...]) -> str:
    """Of the run's folder: the option, or made of the program's."""
    if given is None:
        return re.sub(r"[^A-Za-z0-9._]+", "-", Path(argv[0]).stem).strip("-.")[:40] or "program"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", given):
        raise SpecError(f"--name {given}: expected letters, digits, '.', '_' and '-', at most 80")
    return given


def _profile(options: dict[str, Any]) -> Profile:
    from wanbench.netprofiles import Delay, ProfileError, Rate, load, uniform

    name, rtt, rate = options["profile"], options["rtt"], options["rate"]
    try:
        if name == "uniform":
            if rtt is None:
                raise SpecError("--profile uniform: needs --rtt, e.g. --rtt 100ms")
            profile = uniform(options["workers"], Delay.parse(rtt), Rate.parse(rate) if rate else None)
        else:
            if rtt or rate:
                raise SpecError(f"--rtt and --rate go with --profile uniform; {name} has its own (--rate-scale scales)")
            profile = load(name)
    except (ProfileError, ValueError) as error:
        raise SpecError(f"--profile {name}: {error}") from None
    scale = options["rate_scale"]
    return profile if scale is None else profile.with_rate_scale(scale)


def _check_host(program: Program) -> None:
    from wanbench.harness import testbeds
    from wanbench.harness.emulators import choice
    from wanbench.harness.spec.command import check_there

    if program.testbed not in testbeds.TESTBEDS:
        raise SpecError(f"--testbed {program.testbed}: expected one of {', '.join(testbeds.TESTBEDS)}")
    if program.emulator not in choice.EMULATORS:
        raise SpecError(f"--emulator {program.emulator}: expected auto or one of {', '.join(choice.EMULATORS)}")
    if program.testbed == "netns":
        check_there(program.argv[0], program.cwd)
    choice.check(program.emulator, testbeds.home_of(program.testbed))
    testbeds.check(program.testbed, [program.image])


def _row(program: Program, ended: Ended) -> dict[str, Any]:
    from wanbench.harness.timeline.changes import described

    def counted(kind: str, name: str) -> int:
        return sum(
            m["counters_after"][kind].get(name, 0) - m["counters_before"][kind].get(name, 0)
            for m in ended.finished.values()
        )

    return {
        "status": "ok" if ended.code == 0 else "failed",
        "exit_code": ended.code,
        "failed_rank": ended.failed,
        "argv": list(program.argv),
        "workers": program.workers,
        "processes_per_worker": program.processes,
        "sites": list(program.sites),
        "profile": program.profile.name,
        "testbed": program.testbed,
        "emulator": program.emulator,
        "image": ended.image,
        "seconds": ended.seconds,
        "wire_bytes": counted("device", "tx_bytes"),
        "retransmits": counted("tcp", "RetransSegs"),
        "one_way_error_ms": ended.probe.get("one_way_error_ms"),
        "lateness_p99_ms": ended.stats.get("lateness_p99_ms"),
        "overdue_pct": ended.stats.get("overdue_pct"),
        "timeline": None if program.schedule is None else described(program.schedule.changes),
        "events": None if program.schedule is None else ended.events,
    }
