"""Shell completion of arguments: names of experiments, runs and profiles, and files if a file is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


def specs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in experiments, and files."""
    from wanbench.harness.spec.library import builtin_names

    return [CompletionItem(incomplete, type="file"), *_beginning(builtin_names(), incomplete)]


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs below --out, and folders."""
    found = Path(context.params.get("out") or "results").glob("*/manifest.json")
    return [CompletionItem(incomplete, type="dir"), *_beginning((path.parent.name for path in found), incomplete)]


def profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profiles of the catalog, and files."""
    from wanbench.netprofiles import catalog_names

    return [CompletionItem(incomplete, type="file"), *_beginning(["uniform", *catalog_names()], incomplete)]


def papers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Papers that have figures."""
    from wanbench.harness.show.papers import names

    return _beginning(names(), incomplete)


def designs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in designs, and files."""
    from wanbench.harness.learning.design import names

    return [CompletionItem(incomplete, type="file"), *_beginning(names(), incomplete)]


def shown(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names for `show KIND`."""
    from wanbench.harness.cli.list_command import LISTS

    kind: Any = context.params.get("kind")
    return _beginning(LISTS[f"{kind}s"](), incomplete) if f"{kind}s" in LISTS else []


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
