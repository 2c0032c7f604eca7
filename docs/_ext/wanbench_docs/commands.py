"""The help of every command as plain data, for the reference and the man page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from wanbench.harness.cli import COMMANDS, main

EXAMPLE = "Example:"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a help text, reflowed unless `verbatim`."""

    text: str
    verbatim: bool


@dataclass(frozen=True)
class Command:
    """A command: its usage, summary, paragraphs, options as (spelling, meaning), and examples, one line each."""

    name: str
    summary: str
    usage: str
    paragraphs: tuple[Paragraph, ...]
    options: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]


def commands() -> Iterator[Command]:
    """Yield all commands in the order of `wanbench --help`."""
    outer = click.Context(main, info_name="wanbench", **main.context_settings)
    for name, summary in COMMANDS.items():
        found = main.get_command(outer, name)
        assert found is not None
        yield describe(summary, found, click.Context(found, outer, info_name=name))


def describe(summary: str, command: click.Command, context: click.Context) -> Command:
    """Return one command."""
    paragraphs = list(_paragraphs(inspect.cleandoc(f"{command.help or ''}\n\n{command.epilog or ''}")))
    examples = next((p.text for p in paragraphs if p.text.startswith(EXAMPLE)), "")
    return Command(
        str(context.info_name),
        summary,
        " ".join([context.command_path, *command.collect_usage_pieces(context)]),
        tuple(p for p in paragraphs if p.text != examples),
        tuple(_options(command, context)),
        examples_in(examples),
    )


def examples_in(text: str) -> tuple[str, ...]:
    """Return the command lines of a paragraph that begins with `Example:`, with continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text.removeprefix(EXAMPLE)).splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def preface() -> tuple[Paragraph, ...]:
    """Return the text of `wanbench --help` before the list of commands."""
    return tuple(_paragraphs(inspect.cleandoc(main.help or "")))


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield record


def _paragraphs(text: str) -> Iterator[Paragraph]:
    """Yield the blocks between blank lines. One that begins with click's mark, a backspace, keeps its lines."""
    for block in re.split(r"\n\s*\n", text):
        verbatim = block.startswith("\b\n")
        lines = block.removeprefix("\b\n")
        yield Paragraph(lines if verbatim else " ".join(lines.split()), verbatim)
