"""What `verify` says about the recorded runs of a paper: a figure of a refused run must not be committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wanbench.harness.results import planned
from wanbench.harness.results.verify import objections
from wanbench.harness.show.papers import Figure, Paper
from wanbench.harness.show.papers.drawing import recorded, select
from wanbench.harness.show.problems import grouped

ACCURACY = "accuracy"
_LEARNED = {ACCURACY, "final_loss"}


def refusals(paper: Paper, reference: Path) -> Iterator[str]:
    """Yield one line for each reason why a figure of this paper may not be published.

    The rule on accuracy refuses speeds that cost accuracy. A figure that shows this accuracy may have them.

    Raises:
        SpecError: a run is not recorded.
    """
    for run in filter(None, dict.fromkeys(run for figure in paper.figures for run in (figure.run, figure.beside))):
        folder = recorded(reference, run)
        rows = folder.rows()
        found = objections(rows, planned.read(folder.path).names)
        hiding = {row["cell"] for figure in _hiding(paper, run) for row in select(figure, rows)}
        kept = [one for one in found if one.rule != ACCURACY or one.cell in hiding]
        yield from (f"{folder.path}: verify refuses it: {line}" for line in grouped(kept, run))


def _hiding(paper: Paper, run: str) -> Iterator[Figure]:
    """Yield the figures of a run that show no accuracy."""
    for figure in paper.figures:
        learned = figure.kind in {"learning", "pareto"} or _LEARNED & {*figure.columns, *figure.y}
        if figure.run == run and not learned:
            yield figure
