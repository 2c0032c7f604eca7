"""A comparison as text: a line per pair, then how many pairs agree, and the worst pair."""

from wanbench.harness.analysis.best import TIE_SHARE
from wanbench.harness.analysis.compare import FAR, NEAR, Comparison
from wanbench.harness.show.grid import fitted, left_out, markdown, width_of_output
from wanbench.harness.text import shown

_SPREAD = "min..max"
_DROP = ("law ratio", "law", _SPREAD)


def as_table(comparison: Comparison, sort: str | None = None, width: int | None = None) -> str:
    """One aligned line per pair, then how many pairs agree, and the worst pair.

    Args:
        sort: "ratio" or "-ratio" (largest first) instead of the order of algorithms.
        width: in characters; None: that of the terminal. Columns that do not fit are left out and named.
    """
    table, dropped = fitted(*_grid(comparison, sort), _DROP, width or width_of_output())
    return f"{table}\n{left_out(dropped, '`--format json` has all numbers.')}{summary(comparison)}\n"


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


def finding(comparison: Comparison) -> str:
    """How many pairs agree, or, if the axis changes what is measured, how far they differ."""
    if comparison.of_same:
        total = len(comparison.pairs)
        return f"{comparison.within(NEAR)} of {total} step times agree within {100 * NEAR:.0f} %"
    ratio = comparison.worst.ratio
    if comparison.within(TIE_SHARE) == len(comparison.pairs):
        return f"all step times agree within {100 * TIE_SHARE:g} %"
    fast, slow = (comparison.worst.head, comparison.worst.base)[:: 1 if ratio < 1 else -1]
    return f"{fast} is up to {max(ratio, 1 / ratio):.3g} times as fast as {slow}"


def summary(comparison: Comparison) -> str:
    """One line: how many pairs agree, or which are faster and by how much, and the pair that differs the most."""
    total, worst = len(comparison.pairs), comparison.worst
    where = "".join(f", {axis} {shown(value)}" for axis, value in worst.where.items())
    have = "cell has" if comparison.unpaired == 1 else "cells have"
    alone = f"; {comparison.unpaired} {have} no partner" if comparison.unpaired else ""
    if not comparison.of_same:
        heads = dict.fromkeys(pair.head for pair in comparison.pairs)
        counts = "; ".join(_faster(comparison, head) for head in heads)
        return f"{counts}; {finding(comparison)} ({worst.algorithm}{where}){alone}"
    return (
        f"{comparison.within(NEAR)} of {total} cells agree within {100 * NEAR:.0f} %, {comparison.within(FAR)} within "
        f"{100 * FAR:.0f} %; worst ratio {worst.ratio:.3f} ({worst.algorithm}{where}){alone}"
    )


def _faster(comparison: Comparison, head: str) -> str:
    """ "ring against direct: 1 of 3 cells faster, 0 slower, 2 within 1 %"."""
    ratios = [pair.ratio for pair in comparison.pairs if pair.head == head]
    faster, slower = (sum(side > 1 + TIE_SHARE for side in sides) for sides in ([1 / r for r in ratios], ratios))
    equal = len(ratios) - faster - slower
    text = f"{head} against {comparison.pairs[0].base}: {faster} of {len(ratios)} cells faster, {slower} slower"
    return f"{text}, {equal} within {100 * TIE_SHARE:g} %"
