"""The command line. One file a command, imported when it is called: `--help` must be instant."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from wanbench.harness.errors import EXIT_HOST, EXIT_INTERRUPTED, WanbenchError, in_words

# name -> what `wanbench --help` says, so that listing the commands imports none of them
COMMANDS = {
    "doctor": "What this host can do, and the exact fix for what it cannot.",
    "init": "Write a commented starter spec.",
    "plan": "The cells of an experiment, their predicted step times, and what will run.",
    "run": "Run an experiment; run it again to resume.",
    "exec": "Run any program on an emulated network, as torchrun would.",
    "results": "Show the results of a run.",
    "figures": "Draw the figures of a run, or of a paper.",
    "report": "One page of a run, to look at and to pass on.",
    "compare": "Compare the cells of a run along an axis, or two runs.",
    "check": "Fail where scalability regressed: the gate of a CI build.",
    "record": "Measure a paper's experiments and keep what its figures need.",
    "verify": "May the numbers of a run be published?",
    "calibrate": "A workload by numbers from a real training script.",
    "measure": "A profile from output of ping and iperf3, or from live hosts.",
    "list": "List what a spec can name, its keys, or the columns of results.",
    "show": "Show one algorithm, compressor, workload, profile or experiment.",
    "completion": "Completion of commands, options and names in your shell.",
    "clean": "Remove what a crashed run may have left on this host.",
}


class _LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"wanbench.harness.cli.{name}_command")
        command: click.Command = module.command
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

    def invoke(self, context: click.Context) -> Any:
        """Errors that are the user's to mend are one line, with the documented exit code."""
        try:
            return super().invoke(context)
        except WanbenchError as error:
            click.echo(f"wanbench: {error}", err=True)
            context.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("wanbench: interrupted", err=True)
            context.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # What is still in the buffer would fail once more, when the interpreter flushes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(0)
        except OSError as error:  # a full or read-only disk, a folder that others may not read
            if error.errno is None:
                raise
            click.echo(": ".join(filter(None, ["wanbench", str(error.filename or ""), in_words(error)])), err=True)
            context.exit(EXIT_HOST)


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
    (check), 130 interrupted (run again to resume).
    """
    # Models and algorithms of the user's own, "pkg:make", are looked for in the working folder as well: behind the
    # standard library, and before what is installed, as scripts in that folder would find them.
    installed = (place for place, folder in enumerate(sys.path) if folder.endswith("site-packages"))
    sys.path.insert(next(installed, len(sys.path)), os.getcwd())
