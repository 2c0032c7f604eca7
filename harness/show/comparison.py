"""A comparison as text: a line per pair, then how many pairs agree, and the worst pair."""

from __future__ import annotations

from wanbench.harness.analysis.compare import FAR, NEAR, Comparison
from wanbench.harness.show.grid import fitted, left_out, markdown, shown, width_of_output

_SPREAD = "min..max"
_DROP = ("law ratio", "law", _SPREAD)


def as_table(comparison: Comparison, sort: str | None = None, width: int | None = None) -> str:
    """One aligned line per pair, then how many pairs agree, and the worst pair.

    Args:
        sort: "ratio" or "-ratio" (largest first) instead of the order of algorithms.
        width: in characters; None: that of the terminal. Columns that do not fit are left out and named.
    """
    table, dropped = fitted(*_grid(comparison, sort), _DROP, width or width_of_output())
    note = left_out(dropped, "`--format json` has all numbers.")
    return f"{table}\n{note}{summary(comparison)}\n"


def as_markdown(comparison: Comparison, sort: str | None = None) -> str:
    """The same as a GitHub-flavoured Markdown table with all columns."""
    return f"{markdown(*_grid(comparison, sort), numbers=True)}\n{summary(comparison)}\n"


def _grid(comparison: Comparison, sort: str | None) -> tuple[list[str], list[list[str]]]:
    heads = list(dict.fromkeys(pair.head for pair in comparison.pairs))
    first = comparison.pairs[0]
    axes = list(first.where)
    header = ["algorithm", *axes]
    header += [f"{first.base} s/step", _SPREAD, *([comparison.by] if len(heads) > 1 else [])]
    header += [f"{heads[0]} s/step" if len(heads) == 1 else "s/step", _SPREAD, "ratio", "law", "law ratio"]
    pairs = list(comparison.pairs)
    if sort is not None:
        pairs.sort(key=lambda pair: pair.ratio, reverse=sort.startswith("-"))
    lines = []
    for pair in pairs:
        law = ["", ""] if pair.law_s is None else [f"{pair.law_s:.4f}", f"{pair.law_s / pair.base_s:.3f}"]
        lines.append(
            [
                pair.algorithm,
                *(shown(pair.where[axis]) for axis in axes),
                f"{pair.base_s:.4f}",
                _range(pair.base_range_s),
                *([pair.head] if len(heads) > 1 else []),
                f"{pair.head_s:.4f}",
                _range(pair.head_range_s),
                f"{pair.ratio:.3f}",
                *law,
            ]
        )
    return header, lines


def _range(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.4f}..{ends[1]:.4f}"


def summary(comparison: Comparison) -> str:
    """One line: how many pairs agree, and the worst pair."""
    total, worst = len(comparison.pairs), comparison.worst
    where = "".join(f", {axis} {shown(value)}" for axis, value in worst.where.items())
    have = "cell has" if comparison.unpaired == 1 else "cells have"
    alone = f"; {comparison.unpaired} {have} no partner" if comparison.unpaired else ""
    return (
        f"{comparison.within(NEAR)} of {total} cells agree within {100 * NEAR:.0f} %, {comparison.within(FAR)} within "
        f"{100 * FAR:.0f} %; worst ratio {worst.ratio:.3f} ({worst.algorithm}{where}){alone}"
    )
