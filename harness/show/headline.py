"""The opening of `results`: the best algorithm on every network, its gain and its cost. Pure for a given width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.show.grid import fitted, left_out, some, width_of_output
from wanbench.harness.show.report.headline import best_note, best_of, best_titles, headline_of

_DROP = ("parameters", "equally fast", "sent per step\nper worker")
_ALSO = 2


def headline(rows: Iterable[Mapping[str, Any]], width: int | None = None) -> str:
    """A sentence, a table with a line per network, and the meaning of its columns; "" if nothing can be compared yet.

    Args:
        rows: one per repetition. width: in characters; None: that of the terminal.
    """
    rows = list(rows)
    try:
        found = networks(rows)
    except AnalysisError:
        return ""
    width = width or width_of_output()
    best = [best_of(network, _ALSO) for network in found]
    titles = best_titles(best)
    lines = [[getattr(row, field) for field in titles] for row in best]
    table, dropped = fitted([*titles.values()], lines, _DROP, width)
    note = f"{best_note(found)}{_scaled(rows)} {left_out(dropped, '`wanbench report` shows them.')}"
    return f"{headline_of(found)}\n\n{table}\n{textwrap.fill(note, width, break_on_hyphens=False)}\n".lstrip()


def _scaled(rows: Iterable[Mapping[str, Any]]) -> str:
    """How the bytes sent relate to those of the model."""
    scales = sorted({row["payload_scale"] for row in rows if row.get("payload_scale") not in (None, 1)})
    return f" Messages, rates and bytes sent are × {some([f'{scale:g}' for scale in scales], _ALSO)}." if scales else ""
