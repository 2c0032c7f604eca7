"""A comparison as text: a line a pair, then how many are near, and the worst."""

from __future__ import annotations

from wanbench.harness.analysis.compare import FAR, NEAR, Comparison
from wanbench.harness.show.grid import aligned, markdown, shown


def as_table(comparison: Comparison, sort: str | None = None) -> str:
    """One aligned line a pair, then how many are near, and the worst.

    Args:
        comparison: what to show. sort: "ratio" or "-ratio" (largest first) in place of the order of algorithms.
    """
    return f"{aligned(*_grid(comparison, sort))}\n{summary(comparison)}\n"


def as_markdown(comparison: Comparison, sort: str | None = None) -> str:
    """The same as a GitHub-flavoured Markdown table."""
    return f"{markdown(*_grid(comparison, sort), numbers=True)}\n{summary(comparison)}\n"


def _grid(comparison: Comparison, sort: str | None) -> tuple[list[str], list[list[str]]]:
    heads = list(dict.fromkeys(pair.head for pair in comparison.pairs))
    first = comparison.pairs[0]
    axes = list(first.where)
    header = ["algorithm", *axes]
    header += [f"{first.base} s/step", "least..most", *([comparison.by] if len(heads) > 1 else [])]
    header += [f"{heads[0]} s/step" if len(heads) == 1 else "s/step", "least..most", "ratio", "law", "law ratio"]
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
    """In one line."""
    total, worst = len(comparison.pairs), comparison.worst
    where = "".join(f", {axis} {shown(value)}" for axis, value in worst.where.items())
    have = "cell has" if comparison.unpaired == 1 else "cells have"
    alone = f"; {comparison.unpaired} {have} no partner" if comparison.unpaired else ""
    return (
        f"{comparison.within(NEAR)} of {total} cells within {NEAR:.0%}, {comparison.within(FAR)} within {FAR:.0%}; "
        f"worst {worst.ratio:.3f} ({worst.algorithm}{where}){alone}"
    )
