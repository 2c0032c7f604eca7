"""Running experiments and reading results from Python, with the command line's words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.errors import HostError, in_words
from wanbench.harness.plan.cell import Cell, expand
from wanbench.harness.results.store import RunFolder, open_run
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

    def rows(self) -> list[dict[str, Any]]:
        """One object per repetition, with every column."""
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
    measure_all(spec, expand(spec, where), folder, jobs=jobs)
    return Run(folder)


def measure_all(
    spec: Spec,
    cells: list[Cell],
    folder: RunFolder,
    *,
    text: str | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    keep: bool = False,
    draw: bool = True,
) -> Tally:
    """What `wanbench run` does, with the folder locked.

    Args:
        text: the spec as the user wrote it, stored beside the resolved one.
        fresh: throw earlier results away. keep: accept results that other code measured.
        draw: make the figures at the end.
    """
    with folder.lock(), _writable(folder):
        folder.sweep()
        if fresh:
            folder.clear()
        elif not keep:
            folder.refuse_mixed_code({cell.key: code_hash(cell) for cell in cells})
        folder.prepare(text, _resolved(spec, cells), manifest(cells))
        todo = pending(cells, spec.run.repeats, folder)
        say = Reporter(len(todo))
        total = len(cells) * spec.run.repeats
        for problem in folder.read()[1]:
            say.say(f"{folder.path / problem}")
        say.say(f"{spec.name}: {len(cells)} cells x {spec.run.repeats} = {total} reps, {len(todo)} to do")
        if spec.run.emulator == "auto" and todo:
            for line in _choices(cells):
                say.say(line)
        try:
            tally = execute(todo, folder, side_by_side(jobs or DEFAULT_SLOTS), os.cpu_count() or 1, say, draw=draw)
        finally:
            say.close()
        _derive(folder, draw)
    return tally


def _resolved(spec: Spec, cells: list[Cell]) -> dict[str, Any]:
    """The spec as plain data, traces included, wherever they lie."""
    timeline = {key: cell.config[key] for cell in cells for key in ("timeline",) if key in cell.config}
    return spec.to_dict() | timeline


@contextmanager
def _writable(folder: RunFolder) -> Iterator[None]:
    """A full disk, say, is one line. Raises: HostError."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder.path
        raise HostError(f"{where}: {in_words(error)}; finished repetitions are kept") from None


def _choices(cells: list[Cell]) -> list[str]:
    """Which emulator `auto` became, and why."""
    given = {"emulator", "run.emulator"}
    chosen = [cell for cell in cells if cell.workers > 1 and cell.config["emulator"] and not given & cell.axes.keys()]
    kinds = dict.fromkeys((cell.config["testbed"], cell.config["emulator"]) for cell in chosen)
    return [f"emulator {emulator}: {choice.chosen(testbeds.home_of(testbed))[1]}" for testbed, emulator in kinds]


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
