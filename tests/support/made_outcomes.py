"""Outcomes of made-up commits, for tests of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wanbench.harness.results.outcome import CellOutcome, Outcome

SUBJECT = "Change number {}"


def commit(number: int) -> str:
    """Return the hash of a made-up commit."""
    return f"{number:07x}" + "0" * 33


def outcomes(
    cells: Mapping[str, Sequence[float | None]], *, metric="scalability", testbed="netns", **fields: Sequence
) -> list[Outcome]:
    """Return one outcome per value; `fields` has a sequence for every attribute of an outcome that differs."""
    count = len(next(iter(cells.values())))
    return [
        Outcome(
            experiment="t",
            commit=commit(at),
            subject=SUBJECT.format(at),
            date=f"2026-01-{1 + at % 28:02}T00:00:00+00:00",
            cells={
                name: cell(values[at], metric=metric, testbed=testbed)
                for name, values in cells.items()
                if values[at] is not None
            },
            **{name: values[at] for name, values in fields.items()},
        )
        for at in range(count)
    ]


def cell(value: float, *, metric="scalability", testbed="netns", **fields) -> CellOutcome:
    """Return a cell with three repetitions if it is emulated."""
    simulated = testbed == "virtual"
    numbers = [value] if simulated else [value, 0.99 * value, 1.01 * value]
    return CellOutcome(
        testbed=testbed,
        emulator=None if simulated else "relay",
        repeats=len(numbers),
        metrics={metric: numbers},
        **fields,
    )
