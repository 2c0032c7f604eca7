"""wanbench completion, and what a shell completes: names of experiments, runs and profiles, and files if accepted."""

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from wanbench.harness.spec.library import builtin_names


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print a script that completes commands, options and names (experiments, runs, profiles) in SHELL.

    In zsh, the folder must be in fpath before compinit runs: put fpath+=~/.zfunc into ~/.zshrc.

    \b
    Example:  wanbench completion bash > ~/.local/share/bash-completion/completions/wanbench
              wanbench completion zsh > ~/.zfunc/_wanbench
              wanbench completion fish > ~/.config/fish/completions/wanbench.fish
    """
    from wanbench.harness.cli import main

    of_shell = get_completion_class(shell)
    assert of_shell is not None
    click.echo(of_shell(main, {}, "wanbench", "_WANBENCH_COMPLETE").source())


def specs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in experiments, and files."""
    return [CompletionItem(incomplete, type="file"), *beginning(builtin_names(), incomplete)]


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs below --out, and folders."""
    manifests = Path(context.params.get("out") or "results").glob("*/manifest.json")
    return [CompletionItem(incomplete, type="dir"), *beginning((path.parent.name for path in manifests), incomplete)]


def profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profiles of the catalog, and files."""
    from wanbench.netprofiles import catalog_names

    return [CompletionItem(incomplete, type="file"), *beginning(["uniform", *catalog_names()], incomplete)]


def papers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Papers that have figures."""
    from wanbench.harness.show.papers import names

    return beginning(names(), incomplete)


def designs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in designs, and files."""
    from wanbench.harness.learning.design import DESIGNS

    return [CompletionItem(incomplete, type="file"), *beginning(builtin_names(DESIGNS), incomplete)]


def beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that begin with what was typed."""
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
