"""wanbench completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_WANBENCH_COMPLETE"


@click.command("completion", short_help="Print the completion script for your shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a script that completes commands, options and names (experiments, runs, profiles) in SHELL.

    In zsh, the folder must be in fpath before compinit runs: put fpath+=~/.zfunc into ~/.zshrc.

    \b
    Example:  wanbench completion bash > ~/.local/share/bash-completion/completions/wanbench
              wanbench completion zsh > ~/.zfunc/_wanbench
              wanbench completion fish > ~/.config/fish/completions/wanbench.fish
    """
    from wanbench.harness.cli import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "wanbench", _VARIABLE).source())
