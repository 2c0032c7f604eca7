"""The same cells at two values of an axis: what the simulated clock says beside what was measured, for example."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wanbench.harness.analysis.summary import AXES, AnalysisError, algorithm_order, cells, frame, records

Row = Mapping[str, Any]

# What follows from the axis, and so may differ between two cells that are compared along it.
_FOLLOWS = {"testbed": ("emulator",)}
NEAR, FAR = 0.10, 0.20


@dataclass(frozen=True)
class Pair:
    """One cell at two values of an axis; step times are medians over valid repetitions, in seconds.

    Attributes:
        algorithm: label. where: the other swept axes.
        base, head: the values. base_s, head_s: the step times there.
        law_s: by the step-time law, None where there is none.
        kind, params: of the algorithm, for its look.
        base_range_s, head_range_s: least and most of the repetitions, None of a single one.
    """

    algorithm: str
    where: Mapping[str, Any]
    base: str
    head: str
    base_s: float
    head_s: float
    law_s: float | None
    kind: str
    params: Mapping[str, Any]
    base_range_s: tuple[float, float] | None = None
    head_range_s: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """Head over base."""
        return self.head_s / self.base_s

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the ratios."""
        law = None if self.law_s is None else self.law_s / self.base_s
        return {**asdict(self), "ratio": self.ratio, "law_ratio": law}


@dataclass(frozen=True)
class Comparison:
    """All pairs along an axis, and the cells that only one of the values has."""

    by: str
    pairs: tuple[Pair, ...]
    unpaired: int

    def within(self, share: float) -> int:
        """How many pairs differ by at most this share of the base."""
        return sum(abs(pair.ratio - 1) <= share for pair in self.pairs)

    @property
    def worst(self) -> Pair:
        """The pair that differs most."""
        return max(self.pairs, key=lambda pair: abs(math.log(pair.ratio)))


def compare(rows: Iterable[Row], by: str) -> Comparison:
    """Pair the cells of more than one worker that agree in everything but an axis.

    The base is the first value of the axis by name, but never `virtual`: what is measured is what counts.

    Raises:
        AnalysisError: no such axis, or no cell has a valid repetition at two of its values.
    """
    known = ("run", *AXES)
    if by not in known:
        raise AnalysisError(f"--by {by}: not an axis; expected one of {', '.join(known)}")
    summary = cells(frame(rows))
    lines = [line for line in records(summary) if line["workers"] != 1 and line["status"] == "ok"]
    free = {"run", by, *_FOLLOWS.get(by, ())}
    if by == "run" and all(len({line["testbed"] for line in of}) == 1 for of in _by_run(lines).values()):
        free |= {"testbed", "emulator"}
    fixed = [axis for axis in known if axis not in free]
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for line in lines:
        key = (line["algorithm"], *(_comparable(line[axis]) for axis in fixed))
        groups.setdefault(key, {})[str(line[by])] = line
    values = {value for group in groups.values() for value in group}
    if len(values) < 2:
        only = f"only {values.pop()}" if values else "no valid result"
        raise AnalysisError(f"--by {by}: expected two values of {by} or more, and there is {only}")
    base = min(values, key=lambda value: (value == "virtual", value))
    swept = [axis for axis in fixed if len({_comparable(line[axis]) for line in lines}) > 1]
    pairs = [
        _pair(group[base], group[head], base, head, swept)
        for group in groups.values()
        if base in group
        for head in sorted(group)
        if head != base
    ]
    if not pairs:
        raise AnalysisError(f"--by {by}: no cell has a valid repetition at two values of {by}")
    pairs.sort(key=lambda pair: (algorithm_order(pair.algorithm, pair.kind, pair.params), _sortable(pair, swept)))
    return Comparison(by, tuple(pairs), sum(len(group) == 1 for group in groups.values()))


def _by_run(lines: Iterable[Row]) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = {}
    for line in lines:
        runs.setdefault(line["run"], []).append(line)
    return runs


def _pair(base: Row, head: Row, base_value: str, head_value: str, swept: Sequence[str]) -> Pair:
    law = base["predicted_step_time_s"]
    return Pair(
        algorithm=base["algorithm"],
        where={axis: _comparable(base[axis]) for axis in swept},
        base=base_value,
        head=head_value,
        base_s=float(base["step_time_s"]),
        head_s=float(head["step_time_s"]),
        law_s=None if law is None or math.isnan(law) else float(law),
        kind=base["kind"],
        params=base["params"] or {},
        base_range_s=_ends(base),
        head_range_s=_ends(head),
    )


def _ends(line: Row) -> tuple[float, float] | None:
    return (float(line["step_time_s_min"]), float(line["step_time_s_max"])) if line["repeats"] > 1 else None


def _comparable(value: Any) -> Any:
    """NaN equals NaN, and a number is a number."""
    if value is None or value != value:
        return None
    return float(value) if isinstance(value, float) else value


def _sortable(pair: Pair, swept: Sequence[str]) -> tuple[tuple[bool, float, str], ...]:
    values = [pair.where[axis] for axis in swept]
    numbers = [isinstance(value, int | float) for value in values]
    return tuple(
        (value is None, float(value) if number else 0.0, "" if number else str(value))
        for value, number in zip(values, numbers, strict=True)
    )


def as_table(comparison: Comparison, sort: str | None = None) -> str:
    """One aligned line a pair, then how many are near, and the worst.

    Args:
        comparison: what to show. sort: "ratio" or "-ratio" (largest first) in place of the order of algorithms.
    """
    from wanbench.harness.show.tables import aligned

    header, lines = _grid(comparison, sort)
    return aligned(header, lines) + "\n" + summary(comparison) + "\n"


def as_markdown(comparison: Comparison, sort: str | None = None) -> str:
    """The same as a GitHub-flavoured Markdown table."""
    header, lines = _grid(comparison, sort)
    rule = [":--", *["--:"] * (len(header) - 1)]
    grid = "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])
    return f"{grid}\n\n{summary(comparison)}\n"


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
                *(_shown(pair.where[axis]) for axis in axes),
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
    where = "".join(f", {axis} {_shown(value)}" for axis, value in worst.where.items())
    have = "cell has" if comparison.unpaired == 1 else "cells have"
    alone = f"; {comparison.unpaired} {have} no partner" if comparison.unpaired else ""
    return (
        f"{comparison.within(NEAR)} of {total} cells within {NEAR:.0%}, {comparison.within(FAR)} within {FAR:.0%}; "
        f"worst {worst.ratio:.3f} ({worst.algorithm}{where}){alone}"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
