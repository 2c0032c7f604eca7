"""Run experiments and read results from Python, in the words of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.plan import make
from wanbench.harness.results.columns import Row
from wanbench.harness.results.planned import auto_of
from wanbench.harness.results.store import RunFolder, open_run
from wanbench.harness.run.host import ThisHost
from wanbench.harness.run.together import measure_all
from wanbench.harness.spec.axes import SHORT_AXES
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.library import read
from wanbench.harness.spec.tables import RunTable
from wanbench.netprofiles import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from wanbench.harness.show.notebook import Picture, Pictures


class Run:
    """The results of one experiment: a folder that `wanbench run` wrote, or a recorded run.

    It displays itself in a notebook: how many cells are finished, and the best algorithm on each network.

    Example:
        >>> run = wanbench.Run.open("latency-sweep")  # results/latency-sweep
        >>> run.best()  # a pandas.DataFrame
        >>> run.figure("scalability-by-rtt")
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def open(cls, source: str | None = None, out: str | Path = "results") -> Run:
        """Open a run that exists.

        Args:
            source: its folder, or its name under `out`; None opens the latest run.
            out: the folder that holds the runs.

        Raises:
            SpecError: there is no such run.
        """
        return cls(open_run(source, Path(out)))

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.folder.path

    def rows(self) -> list[Row]:
        """Return one dict per repetition, with every column (see `wanbench list columns`).

        Only the cells of the spec as last run are included.
        """
        return self.folder.rows()

    def results(self) -> pd.DataFrame:
        """Return the same as `rows`, as a table with one line per repetition. Column names carry the units."""
        from wanbench.harness.analysis.summary import frame

        return frame(self.rows())

    def cells(self) -> pd.DataFrame:
        """Return a table with one line per cell: medians over the valid repetitions, with minimum and maximum."""
        import pandas as pd

        from wanbench.harness.analysis.summary import cells

        return pd.DataFrame(cells(self.results()), dtype=object)

    def best(self) -> pd.DataFrame:
        """Return a table of the best algorithm on each network: the fastest that costs no accuracy.

        Algorithms that are equally fast are ranked by how little they send. `kind` and `params` are what `wrap` takes.
        Columns that do not apply to this run are left out.

        Raises:
            AnalysisError: no cell with more than one worker has a valid result.
        """
        from wanbench.harness.show.notebook import best

        return best(self.rows())

    def figures(self) -> Pictures:
        """Return all figures of the run by name; in a notebook they display one below the other."""
        from wanbench.harness.results.evidence import Evidence
        from wanbench.harness.show.figures.gallery import gallery
        from wanbench.harness.show.notebook import Picture, Pictures

        drawings = gallery(self.rows(), self.folder.name, Evidence(self.folder))
        return Pictures({drawing.name: Picture(drawing) for drawing in drawings})

    def figure(self, name: str) -> Picture:
        """Return one figure, which displays itself in a notebook; `.figure` is the matplotlib figure.

        Args:
            name: one of `run.figures()`, such as "scalability-by-rtt", or the beginning of one.

        Raises:
            SpecError: the run has no such figure.
        """
        figures = self.figures()
        close = [title for title in figures if title.startswith(name)]
        if not close:
            near = did_you_mean(name, figures, f"it has {', '.join(figures)}" if figures else "none can be drawn yet")
            raise SpecError(f"{self.folder.name}: no figure {name!r}{near}")
        return figures[name if name in figures else close[0]]

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run as one self-contained HTML page and return its path.

        Args:
            path: where to write it; by default report.html in the run's folder.
        """
        from wanbench.harness.show.report import write_report

        return write_report(self.folder, Path(path) if path is not None else self.path / "report.html")

    def __repr__(self) -> str:
        from wanbench.harness.show.notebook import summary

        return f"<Run {self.folder.name}: {summary(self.rows())}; {self.path}>"

    def _repr_html_(self) -> str:
        from wanbench.harness.show.notebook import run_html

        return run_html(self.folder.name, self.rows())


def run(
    spec: Spec | str | Path,
    *,
    testbed: str | None = None,
    emulator: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "results",
    where: str | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    keep: bool = False,
    figures: bool = True,
    **unknown: Never,
) -> Run:
    """Run an experiment: measure the repetitions that are not finished yet, then draw the figures.

    Example:
        >>> wanbench.run("smoke", testbed="virtual").best()

    Args:
        spec: a built-in name, the path of a TOML file, or a `Spec`.
        testbed: "netns", "docker", "virtual" or "auto"; None keeps what the spec names. emulator: likewise.
        settings: any other value of the spec by its dotted key, such as {"run.repeats": 1}.
        out: the folder that holds the runs. This one is written to out/<name of the spec>.
        where: how errors name a `Spec`. Profile files are searched beside it.
        jobs: maximum number of repetitions that run side by side.
        fresh: throw earlier results of this experiment away. keep: accept results that other code measured.
        figures: False measures only, which is quicker.

    Returns:
        The run, as `Run.open` would open it.

    Raises:
        SpecError: the spec is wrong; nothing was measured.
        HostError: this host cannot do it. Interrupted: Ctrl-C. Either way finished repetitions are kept.
        TypeError: the call is wrong.
    """
    source = None if isinstance(spec, Spec) else _source(spec)
    if unknown:
        raise TypeError(_unknown_option(min(unknown), unknown[min(unknown)]))
    where = where or source or "spec"
    loaded = spec if isinstance(spec, Spec) else Spec.load(spec)
    named = {"run.testbed": testbed, "run.emulator": emulator}
    changes = {key: value for key, value in named.items() if value is not None} | dict(settings or {})
    for key in changes:
        if key in {SHORT_AXES.get(axis, axis) for axis in loaded.sweep}:
            raise SpecError(f"{where}: {key}: the spec sweeps it; set its axis under sweep instead")
    loaded = loaded.override(changes, where) if changes else loaded
    folder = RunFolder(Path(out) / loaded.name)
    text = read(source) if source else None
    plan = make(loaded, where, ThisHost(), {} if fresh else auto_of(folder.path))
    measure_all(plan, folder, text=text, jobs=jobs, fresh=fresh, keep=keep, draw=figures)
    return Run(folder)


def _source(spec: object) -> str:
    """The name or path of a spec. Raises: TypeError: it is something else."""
    if isinstance(spec, str | Path):
        return str(spec)
    if isinstance(spec, Mapping):
        raise TypeError("run({...}): expected a Spec, a name or a path; call run(Spec.from_dict({...}))")
    raise TypeError(f'run: expected a Spec, a name or a path, got {type(spec).__name__}; call run("smoke")')


def _unknown_option(name: str, value: object) -> str:
    options = [option for option in inspect.signature(run).parameters if option not in {"spec", "unknown"}]
    near = did_you_mean(name, options)
    key = f"run.{name}" if name in RunTable.model_fields else f"TABLE.{name}"
    hint = near or f'; for a value of the spec call run(spec, settings={{"{key}": {value!r}}})'
    return f"run: unknown option {name!r}{hint} (options: {', '.join(options)})"
