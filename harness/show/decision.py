"""What `results` opens with: the best algorithm of every network, what it gains and what it costs. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.grid import aligned
from wanbench.harness.show.report.headline import best_note, best_of, headline_of

_HEADER = ("network", "best", "parameters", "scalability", "times ssgd", "accuracy", "MB a step", "equally fast")
_WIDTH = 110
_ALSO = 3


def decision(rows: Iterable[Mapping[str, Any]]) -> str:
    """A sentence, a line a network and what the columns mean; nothing where nothing can be compared yet."""
    try:
        found = networks(rows)
    except AnalysisError:
        return ""
    lines = []
    for network in found:
        best = best_of(network)
        lines.append(
            [best.where, best.best, best.params, best.scalability, best.faster, best.accuracy, best.megabytes,
             _shortened(best.also)]
        )  # fmt: skip
    note = textwrap.fill(best_note(found), _WIDTH)
    return f"{headline_of(found)}\n\n{aligned(_HEADER, lines)}\n{note}\n".lstrip()


def _shortened(names: str) -> str:
    """The first of many."""
    each = names.split(", ")
    return names if len(each) <= _ALSO else f"{', '.join(each[:_ALSO])} and {len(each) - _ALSO} more"
