"""The command line: one file per command, imported when it is called, so that `--help` is instant."""

import importlib
import inspect
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from wanbench.harness.errors import (
    EXIT_HOST,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_SPEC,
    HostError,
    WanbenchError,
    in_words,
    masked,
    out_of_memory,
)

# name -> summary in `wanbench --help`, so that listing the commands imports none of them
COMMANDS = {
    "advise": "Find the fastest algorithm, settings and collective for a network and a model.",
    "map": "Draw the best setting over round-trip time and rate.",
    "doctor": "Check what this host can run, and how to fix what it cannot.",
    "init": "Write a commented starter spec.",
    "plan": "Show the cells of an experiment, their predicted step times, and how long it takes.",
    "run": "Run an experiment; run it again to resume.",
    "work": "Help to measure a run, from any host that sees its folder.",
    "exec": "Run any training program on an emulated network, as torchrun would.",
    "results": "Show the results of a run.",
    "figures": "Draw the figures of a run or of a paper.",
    "report": "Write one HTML page about a run, to read and to share.",
    "compare": "Compare the cells of a run along an axis, or two runs.",
    "check": "Fail a CI build when scalability regresses.",
    "learn": "Record loss and accuracy by step for many algorithms, each with tuned rates.",
    "record": "Measure a paper's experiments and store what its figures need.",
    "verify": "Check whether the numbers of a run may be published.",
    "measure": "Make a profile from the output of ping and iperf3.",
    "trace": "Convert a recording of a network to a trace for a timeline.",
    "list": "List algorithms, workloads, profiles, experiments, designs, learning, keys, columns.",
    "show": "Show one algorithm, compressor, workload, profile, experiment or design in full.",
    "completion": "Print the completion script for your shell.",
    "clean": "Remove what a crashed run left on this host.",
}


class _LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"wanbench.harness.cli.{name}_command").command
        command.short_help = COMMANDS[name]
        _examples_last(command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from wanbench.netprofiles.errors import did_you_mean

            near = did_you_mean(args[0], COMMANDS, "see `wanbench --help`")
            raise click.UsageError(f"no such command {args[0]!r}{near}")
        return super().resolve_command(context, args)

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        while (free := os.open(os.devnull, os.O_RDWR)) < 3:  # the lowest one: a standard stream that was closed
            os.set_inheritable(free, True)
        os.close(free)
        sys.stdout, sys.stderr = _outlasting(sys.stdout, 1), _outlasting(sys.stderr, 2)
        try:
            with _answering():
                code = super().main(*args, **more | {"standalone_mode": False})
        except click.ClickException as error:
            error.show()
            code = EXIT_SPEC
        return sys.exit(code) if standalone_mode else code

    def invoke(self, context: click.Context) -> Any:
        with _answering():
            return super().invoke(context)


@contextmanager
def _answering() -> Iterator[None]:
    """Report every error as one line, with the documented exit code. click's own codes for these errors are 1."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except WanbenchError as error:
        line, code = str(error), error.exit_code
    except (KeyboardInterrupt, click.Abort):
        line, code = "interrupted", EXIT_INTERRUPTED
    except Exception as error:
        if out_of_memory(error):
            line, code = "not enough memory here; see `ulimit -v`, and the memory limit of this container", EXIT_HOST
        elif isinstance(error, OSError) and error.errno is not None:  # a full disk, a folder that may not be read
            line, code = ": ".join(filter(None, [str(error.filename or ""), in_words(error)])), EXIT_HOST
        else:
            line, code = _internal(error), EXIT_INTERNAL
    else:
        return
    click.echo(f"wanbench: {line}", err=True)
    sys.exit(code)


def _internal(error: BaseException) -> str:
    """The line about an error of ours. With WANBENCH_TRACEBACK, its traceback is printed too."""
    if os.environ.get("WANBENCH_TRACEBACK"):
        click.echo(masked("".join(traceback.format_exception(error))), err=True, nl=False)
    title = masked(traceback.format_exception_only(error)[-1]).strip().splitlines()[0]
    return f"internal error: {title}; please report it with the traceback, which WANBENCH_TRACEBACK=1 shows"


class _Outlasting(io.FileIO):
    """Output that nobody may read to its end: `| head`, or a closed terminal, must not change what a command does."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:  # the interpreter would fail again when it flushes the rest of the buffer
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                raise
            return len(data)


def _outlasting(stream: Any, number: int) -> Any:
    """A standard stream whose reader may end. It writes names in any encoding, and the bytes of paths as they are."""
    if stream not in (None, sys.__stdout__, sys.__stderr__):
        return stream
    encoding = "utf-8" if stream is None else stream.encoding
    errors = "surrogateescape" if encoding == "utf-8" else "backslashreplace"
    raw = io.BufferedWriter(_Outlasting(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding, errors, line_buffering=True)


def _examples_last(command: click.Command) -> None:
    """Move the examples of a help text behind the options, where a reader of a terminal ends."""
    before, mark, rest = inspect.cleandoc(command.help or "").partition("\b\nExample:")
    if mark:
        examples, _, after = rest.partition("\n\n")
        command.help, command.epilog = before + after, mark + examples


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="wanbench", message="%(prog)s %(version)s")
def main() -> None:
    """Which distributed training algorithm scales on this network, for this model?

    wanbench runs real PyTorch workers over an emulated wide-area network on this machine.

    \b
    Try:  wanbench run smoke
          wanbench run latency-sweep --set run.repeats=1
          wanbench results --format pivot

    \b
    Exit codes: 0 ok, 1 regression (check), 2 usage or spec, 3 this host cannot, 4 cells failed, 5 inconclusive
    (check), 70 internal error, 130 interrupted (run again to resume).
    """
    from wanbench.workloads.process.descendants import adopt_orphans

    # What users' code leaves behind ends with the command.
    click.get_current_context().call_on_close(adopt_orphans())
    # A user's models and algorithms, "pkg:make", are also imported from the working folder: after the standard
    # library and before installed packages, as for a script in that folder.
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        raise HostError("the working folder no longer exists; change to another one") from None
    installed = (position for position, entry in enumerate(sys.path) if entry.endswith("site-packages"))
    sys.path.insert(next(installed, len(sys.path)), folder)
