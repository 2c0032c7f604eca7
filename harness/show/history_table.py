"""A history as text: the changes by commit, with the cells that changed the most."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from wanbench.harness.analysis.changes import enough
from wanbench.harness.analysis.history import LEVEL, History, Shift
from wanbench.harness.analysis.summary import provenance
from wanbench.harness.show.grid import aligned

MOST = 8  # cells of one commit in the table
_SMALL = 1e-3  # per cent
HEADER = ("cell", "before", "after", "change", "95 % interval", "p", "in commits", "")


def as_text(history: History) -> str:
    """The history, ending in a newline."""
    parts = [f"{headline(history)}\n"]
    for at, group in groupby(history.shifts, key=lambda shift: (shift.at, shift.drift)):
        parts.append(_section(history, at[0], list(group)))
    parts += [f"note: {note}" for note in notes(history)]
    return "\n".join(parts).rstrip("\n") + "\n"


def headline(history: History) -> str:
    """What was followed, and what was found."""
    return f"{history.experiment}: {subject(history)}\n{finding(history)}."


def subject(history: History) -> str:
    """The metric, the number of cells, and the commits."""
    last = len(history.outcomes) - 1
    span = f", {history.title(0)} to {history.title(last)}" if last else f", {history.title(0)}"
    kind = provenance(series.place.testbed for series in history.series)
    return f"{history.metric} of {_plural(len(history.series), 'cell')} at {_plural(last + 1, 'commit')}{span}; {kind}"


def finding(history: History) -> str:
    """The number of cells that changed, the largest loss and the largest gain."""
    changed, total = len({shift.label for shift in history.shifts}), len(history.series)
    if not changed:
        return f"No change in {_plural(total, 'cell')}"
    parts = [f"{changed} of {_plural(total, 'cell')} changed"]
    for word, better in (("loss", False), ("gain", True)):
        most = max((shift for shift in history.shifts if shift.better is better), key=_size, default=None)
        if most is not None:
            at = "in a drift" if most.drift else f"at {history.title(most.at)}"
            parts.append(f"largest {word} {percent(most.change)} {at} ({most.label})")
    return "; ".join(parts)


def _size(shift: Shift) -> float:
    return shift.size


def notes(history: History) -> list[str]:
    """What a reader must know to trust the table."""
    found = []
    measured = [series for series in history.series if not series.exact]
    if measured:
        found.append(
            f"a change is significant up to p = {history.level:.2g}: if no measured cell changed, "
            f"the probability that any shows a change is {100 * LEVEL:g} %"
        )
    if history.unjudged:
        found.append(
            f"{_plural(len(history.unjudged), 'cell')} cannot show a change before {enough(history.level)} commits"
        )
    return found


def _section(history: History, at: int, shifts: Sequence[Shift]) -> str:
    title = "drifts, which no commit explains" if shifts[0].drift else commit_line(history, at)
    lines = [entries(history, shift) for shift in shifts[:MOST]]
    used = used_columns(lines)
    table = aligned([HEADER[place] for place in used], [[line[place] for place in used] for line in lines])
    more = f"... and {len(shifts) - MOST} more; --json has all\n" if len(shifts) > MOST else ""
    return f"{title}\n\n{table}{more}"


def used_columns(lines: Sequence[Sequence[str]]) -> list[int]:
    """The columns that have an entry in any line."""
    return [place for place in range(len(HEADER)) if any(line[place] for line in lines)]


def commit_line(history: History, at: int) -> str:
    """A commit with its date and subject."""
    outcome = history.outcomes[at]
    return "  ".join(filter(None, (history.title(at), (outcome.date or "")[:10], outcome.subject)))


def entries(history: History, shift: Shift) -> list[str]:
    """The columns of `HEADER`."""
    interval = shift.interval
    return [
        shift.label,
        f"{shift.before:.4g}",
        f"{shift.after:.4g}",
        percent(shift.change),
        "" if interval is None else f"[{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]",
        "" if shift.p is None else f"{shift.p:.2g}",
        f"{history.title(shift.first)}..{history.title(shift.last)}",
        "; ".join(("better" if shift.better else "WORSE", *shift.also)),
    ]


def percent(change: float | None) -> str:
    """A relative change: "+12.3 %"."""
    if change is None:
        return "-"
    size = abs(100 * change)
    return f"{100 * change:+.1f} %" if size >= 0.05 else f"{100 * change:+.2g} %" if size >= _SMALL else "< 0.001 %"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
