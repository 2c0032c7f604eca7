"""wanbench completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_WANBENCH_COMPLETE"


@click.command("completion", short_help="Completion of commands, options and names in your shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a script for SHELL that completes commands, options, and names of experiments, runs and all else.

    \b
    Example:  wanbench completion bash > ~/.local/share/bash-completion/completions/wanbench
              wanbench completion zsh > ~/.zfunc/_wanbench
              wanbench completion fish > ~/.config/fish/completions/wanbench.fish

    In zsh the folder has to be in fpath before compinit: fpath+=~/.zfunc in ~/.zshrc.
    """
    from wanbench.harness.cli import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "wanbench", _VARIABLE).source())
