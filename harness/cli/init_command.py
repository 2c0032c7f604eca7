"""wanbench init"""

import re
import shlex
from pathlib import Path

import click

from wanbench.harness.errors import HostError, SpecError

STARTER = Path(__file__).parents[1] / "spec" / "starter.toml"


@click.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="experiment.toml")
def command(file: Path) -> None:
    """Write a starter experiment to FILE (default: experiment.toml), with every choice explained.

    \b
    Example:  wanbench init my-network.toml
    """
    if file.suffix != ".toml":
        raise SpecError(f"{file}: expected a name that ends in .toml")
    if not str(file).isprintable():  # it stands in a comment of the file
        raise SpecError(f"{str(file)!r}: expected a name that can be printed, in one line")
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "experiment"
    quoted = shlex.quote(str(file))
    text = STARTER.read_text(encoding="utf-8").replace("@NAME@", name).replace("@FILE@", quoted)
    try:
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise SpecError(f"{file}: already exists; choose another name") from None
    except OSError as error:
        raise HostError(f"{file}: cannot be written: {error.strerror}") from None
    click.echo(file)
    click.echo(f"edit it, then: wanbench plan {quoted}", err=True)
