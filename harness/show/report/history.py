"""The page of a history: the changes by commit, the figure, every cell and every commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbench.harness.analysis.history import History, Series, Shift
from wanbench.harness.results.columns import COLUMNS
from wanbench.harness.results.disk import write_text
from wanbench.harness.show.history_table import HEADER, entries, finding, notes, percent, subject, used_columns
from wanbench.harness.show.report.rendering import for_script, rendered

_MOST_PANELS, _MOST_POINTS = 24, 4000  # of the figure
_MOST_LINES = 12  # cells of a commit that are shown at once


@dataclass(frozen=True)
class ChangeLine:
    """A change on the page: the used columns of `HEADER` but the last, its direction, and what else changed."""

    entries: tuple[str, ...]
    better: bool
    also: str


@dataclass(frozen=True)
class Commit:
    """A commit on the page."""

    title: str
    date: str
    subject: str
    verdict: str
    worse: int
    better: int
    changes: tuple[ChangeLine, ...]


@dataclass(frozen=True)
class CellLine:
    """A cell on the page: its first and last level, and the number of its changes."""

    label: str
    first: float
    last: float
    change: str
    changes: int
    latest: str


def write_history(history: History, path: Path) -> Path:
    """Write the page to `path` in one step. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(history))
    return path


def page(history: History) -> str:
    """The HTML of a history."""
    from markupsafe import Markup

    from wanbench.harness.show.figures.history import drawing, points
    from wanbench.harness.show.figures.hover import inline_svg
    from wanbench.harness.show.figures.style import PAGE_IN

    most = max(2, min(_MOST_PANELS, _MOST_POINTS // len(history.outcomes)))
    steps = [shift for shift in history.shifts if not shift.drift]
    found = points(history)
    names = list(dict.fromkeys(name for point in found for name in point))
    column, used = COLUMNS.get(history.metric), used_columns([entries(history, shift) for shift in history.shifts])[:-1]
    return rendered(
        "history.html.j2",
        ("page.js",),
        title=f"{history.experiment}: {history.metric} over commits",
        finding=finding(history),
        subject=subject(history),
        meaning="" if column is None else column.text,
        worse=any(not shift.better for shift in history.shifts),
        notes=notes(history),
        header=[HEADER[place] for place in used],
        most=_MOST_LINES,
        commits=[_commit(history, at, steps, used) for at in range(len(history.outcomes))],
        drifts=[_line(history, shift, used) for shift in history.shifts if shift.drift],
        cells=[_cell(history, series) for series in history.series],
        svg=Markup(inline_svg(drawing(history, most).draw(PAGE_IN), "f0", finding(history))),
        data=for_script({"columns": names, "rows": [[point.get(name) for name in names] for point in found]}),
    )


def _commit(history: History, at: int, steps: Sequence[Shift], used: Sequence[int]) -> Commit:
    outcome, mine = history.outcomes[at], [shift for shift in steps if shift.at == at]
    return Commit(
        title=history.title(at),
        date=(outcome.date or "")[:10],
        subject=outcome.subject or "",
        verdict=outcome.verdict or "",
        worse=sum(not shift.better for shift in mine),
        better=sum(shift.better for shift in mine),
        changes=tuple(_line(history, shift, used) for shift in mine),
    )


def _line(history: History, shift: Shift, used: Sequence[int]) -> ChangeLine:
    found = entries(history, shift)
    return ChangeLine(tuple(found[place] for place in used), shift.better, "; ".join(shift.also))


def _cell(history: History, series: Series) -> CellLine:
    mine = [shift for shift in history.shifts if shift.label == series.label]
    drift, levels = series.steps.drift, series.steps.levels
    first, last = (levels[0].mean, levels[-1].mean) if drift is None else (drift.begin, drift.end)
    return CellLine(
        label=series.label,
        first=first,
        last=last,
        change=percent(last / first - 1 if first else None) if mine else "",
        changes=len(mine),
        latest="drift" if drift is not None else history.title(mine[-1].at) if mine else "",
    )
