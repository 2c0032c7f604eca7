"""What a shell offers for an argument: names of experiments, runs and all else, and files where files go as well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


def specs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in experiments; files where none fits."""
    from wanbench.harness.spec.library import builtin_names

    return [CompletionItem(incomplete, type="file"), *_beginning(builtin_names(), incomplete)]


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs below --out; folders where none fits."""
    found = Path(context.params.get("out") or "results").glob("*/manifest.json")
    return [CompletionItem(incomplete, type="dir"), *_beginning((path.parent.name for path in found), incomplete)]


def profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The catalog; files where nothing fits."""
    from wanbench.netprofiles import catalog_names

    return [CompletionItem(incomplete, type="file"), *_beginning(["uniform", *catalog_names()], incomplete)]


def papers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Papers that have figures."""
    from wanbench.harness.show.papers import names

    return _beginning(names(), incomplete)


def shown(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `show KIND` knows."""
    from wanbench.harness.cli.list_command import LISTS

    kind: Any = context.params.get("kind")
    return _beginning(LISTS[f"{kind}s"](), incomplete) if f"{kind}s" in LISTS else []


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
