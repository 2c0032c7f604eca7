"""What `results` opens with: the best algorithm of every network, what it gains and what it costs. Pure."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.grid import aligned, some
from wanbench.harness.show.report.headline import best_note, best_of, headline_of

_HEADER = ("network", "best", "parameters", "scalability", "times ssgd", "accuracy", "MB a step", "equally fast")
_WIDTH = 110
_ALSO = 3


def headline(rows: Iterable[Mapping[str, Any]]) -> str:
    """A sentence, a line a network and what the columns mean; nothing where nothing can be compared yet."""
    try:
        found = networks(rows)
    except AnalysisError:
        return ""
    lines = []
    for network in found:
        *entries, also = dataclasses.astuple(best_of(network))
        lines.append([*entries, some(also.split(", "), _ALSO)])
    note = textwrap.fill(best_note(found), _WIDTH)
    return f"{headline_of(found)}\n\n{aligned(_HEADER, lines)}\n{note}\n".lstrip()
