"""Running experiments and reading results from Python, with the command line's words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from wanbench.harness.errors import HostError, in_words
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan, make
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder, open_run
from wanbench.harness.run.auto import ThisHost, explained
from wanbench.harness.run.host import check_host
from wanbench.harness.run.manifest import code_hash, manifest
from wanbench.harness.run.progress import Reporter
from wanbench.harness.run.session import Tally, execute, pending
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds import side_by_side

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_SLOTS = 6
_LEFT_OUT = {"kind", "params", "low", "high", "accuracy_low", "accuracy_high", "repeats", "equally_fast"}


_SHOWN_NETWORKS = 8


class Run:
    """A run folder, or a recorded one."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def open(cls, source: str | None = None, out: str | Path = "results") -> Run:
        """By folder, by name under `out`, or the latest. Raises: SpecError."""
        return cls(open_run(source, Path(out)))

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    def rows(self) -> list[Row]:
        """One object per repetition of the spec's cells, as the spec was last run, with every column."""
        return self.folder.rows()

    def results(self) -> pd.DataFrame:
        """One line per repetition."""
        from wanbench.harness.analysis.summary import frame

        return frame(self.rows())

    def cells(self) -> pd.DataFrame:
        """One line per cell: medians of valid repetitions, least and most."""
        from wanbench.harness.analysis.summary import cells

        return cells(self.results())

    def best(self) -> pd.DataFrame:
        """The best algorithm of every network; see `harness.analysis.best`. Raises: AnalysisError: nothing is valid."""
        import pandas as pd

        from wanbench.harness.analysis.best import networks

        lines = []
        for network in networks(self.rows()):
            best = network.best
            measured = {} if best is None else asdict(best)
            lines.append({**network.where, **measured, "equally_fast": [s.algorithm for s in network.as_fast]})
        return pd.DataFrame(lines)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page of the run, by default as report.html in its folder; returns its path."""
        from wanbench.harness.show.report import write_report

        return write_report(self.folder, Path(path) if path is not None else self.path / "report.html")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: how many repetitions there are of each status, and the best algorithm of some networks."""
        from html import escape

        from wanbench.harness.analysis.summary import AnalysisError

        rows = self.rows()
        counts = {status: sum(row["status"] == status for row in rows) for status in ("ok", "invalid", "failed")}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing measured yet"
        text = f"<p><strong>{escape(self.folder.name)}</strong>: {escape(said)}</p>"
        try:
            best = self.best()
        except AnalysisError:
            return text
        shown = best[[name for name in best if name not in _LEFT_OUT]].dropna(axis=1, how="all")
        table = shown.head(_SHOWN_NETWORKS).to_html(index=False, border=0, float_format=lambda x: f"{x:.4g}", na_rep="")
        left = len(best) - _SHOWN_NETWORKS
        return text + table + (f"<p>and {left} more networks</p>" if left > 0 else "")


def run(spec: Spec, *, out: str | Path = "results", where: str = "spec", jobs: int | None = None) -> Run:
    """Measure what is not finished yet and draw the figures.

    Args:
        spec: the experiment.
        out: folder that holds the runs; this one goes to out/<spec.name>.
        where: how errors name the spec; profile files are looked for beside it.
        jobs: repetitions side by side at most.

    Raises:
        SpecError: nothing was measured. HostError, Interrupted: finished repetitions are kept.
    """
    folder = RunFolder(Path(out) / spec.name)
    measure_all(make(spec, where, ThisHost()), folder, jobs=jobs)
    return Run(folder)


def measure_all(
    plan: Plan,
    folder: RunFolder,
    *,
    cells: Sequence[Cell] | None = None,
    text: str | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    keep: bool = False,
    draw: bool = True,
) -> Tally:
    """What `wanbench run` does, with the folder locked.

    Args:
        cells: those to measure now, all of the plan if None.
        text: the spec as the user wrote it, stored beside the plan.
        fresh: throw earlier results away. keep: accept results that other code measured.
        draw: make the figures at the end.
    """
    cells = list(plan.cells if cells is None else cells)
    repeats = plan.spec.run.repeats
    with folder.lock(), _writable(folder):
        folder.sweep()
        if not fresh and not keep:
            folder.refuse_mixed_code({cell.key: code_hash(cell) for cell in cells})
        check_host(cells if fresh else [item.cell for item in pending(cells, repeats, folder)])  # nothing is lost yet
        if fresh:
            folder.clear()
        folder.prepare(text, plan.to_json(), manifest(cells))
        todo = pending(cells, repeats, folder)
        say = Reporter(len(todo))
        found = folder.read()
        for line in filter(None, [*(str(folder.path / problem) for problem in found.problems), found.note]):
            say.say(line)
        total = len(cells) * repeats
        say.say(f"{plan.spec.name}: {len(cells)} cells x {repeats} = {total} reps, {len(todo)} to do")
        if todo:
            for line in explained(plan.auto):
                say.say(line)
        try:
            tally = execute(todo, folder, side_by_side(jobs or DEFAULT_SLOTS), os.cpu_count() or 1, say, draw=draw)
        finally:
            say.close()
        _derive(folder, draw)
    return tally


@contextmanager
def _writable(folder: RunFolder) -> Iterator[None]:
    """A full disk, say, is one line. Raises: HostError."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder.path
        raise HostError(f"{where}: {in_words(error)}; finished repetitions are kept") from None


def _derive(folder: RunFolder, draw: bool) -> None:
    """Rebuild what follows from the rows."""
    from wanbench.harness.show.tables import write_parquet

    rows = folder.rows()
    write_parquet(rows, folder.path / "results.parquet")
    if draw and any(row["status"] == "ok" and row["workers"] > 1 for row in rows):
        from wanbench.harness.results.evidence import Evidence
        from wanbench.harness.show.figures import FORMATS, draw_all

        figures = folder.path / "figures"
        drawn = draw_all(rows, folder.name, figures, evidence=Evidence(folder))
        # While results came in, there may have been too few of them for the figures there are now.
        for path in figures.iterdir():
            if path.suffix[1:] in FORMATS and path not in drawn:
                path.unlink()
