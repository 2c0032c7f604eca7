"""Draws a paper's figures from recorded runs, and checks that the committed ones are up to date and may be published.

results/reference/<run>/            recordings (harness/results/record.py)
results/reference/<paper>-<figure>/     map.json of a map
results/reference/<paper>/          <figure>.svg, .png, -column.pdf, and its points as .csv; tables as .md
results/reference/<paper>/index.json    the hash of every file, and the repetitions it was drawn from
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import PIL
import PIL.features
from matplotlib import ft2font

from wanbench.harness.analysis.compare import lay_beside
from wanbench.harness.analysis.summary import AnalysisError, Pivot, Row, frame, pivots
from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.grouping import by_key
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.results import planned
from wanbench.harness.results.disk import write_json, write_text
from wanbench.harness.results.evidence import CURVE, NETWORK, TRACE, Evidence
from wanbench.harness.results.store import RunFolder, open_run
from wanbench.harness.results.verify import objections, problem_lines
from wanbench.harness.show.figures.drawing import Drawing, save, write_points
from wanbench.harness.show.figures.gallery import gallery, scalability_drawing
from wanbench.harness.show.figures.map import read_map
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN
from wanbench.harness.show.papers import Paper, PaperFigure
from wanbench.harness.show.papers.table import equivalence_table, table
from wanbench.harness.show.papers.trend import trend_drawing
from wanbench.harness.text import listed

INDEX = "index.json"
_DRAWN = (".svg", ".png", ".pdf", ".csv", ".md")
_TABLES = {"table": table, "equivalence": equivalence_table}
_ACCURACY = "accuracy"
_LEARNED = {_ACCURACY, "final_loss"}
_EVIDENCE = {"learning": CURVE, "timeline": TRACE, "network": NETWORK}


@dataclass(frozen=True)
class Difference:
    """One committed file that differs from the figure as drawn now.

    Attributes:
        file: its name. why: the reason, as a clause. comparable: False if other library versions may be the reason.
    """

    file: str
    why: str
    comparable: bool


def wanted_evidence(paper: Paper, run: str) -> set[str]:
    """What is recorded of a run in addition to its rows: learning curves, and what the figures of the paper need."""
    return {CURVE} | {
        _EVIDENCE[figure.kind] for figure in paper.figures if figure.run == run and figure.kind in _EVIDENCE
    }


def versions() -> dict[str, str]:
    """Versions of the libraries that determine the bytes of a figure."""
    return {
        "matplotlib": matplotlib.__version__,
        "freetype": ft2font.__freetype_version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "pillow zlib": str(PIL.features.version("zlib")),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def draw_paper(paper: Paper, reference: Path, to: Path) -> list[Path]:
    """Draw every figure of a paper into `to`, with an index; remove the files of figures that it no longer has.

    Raises:
        SpecError: a run is not recorded, or has nothing to draw for a figure.
    """
    to.mkdir(parents=True, exist_ok=True)
    index = {}
    for figure in paper.figures:
        source = _source(figure, reference)
        drawn_from = {"run": figure.run, "reps": _reps(source.rows)}
        index.update(dict.fromkeys(_draw(figure, paper, source, to), drawn_from))
    for path in to.iterdir():
        if path not in index and path.suffix in _DRAWN:
            path.unlink()
    write_index(to, index)
    return [*index]


def write_index(folder: Path, files: Mapping[Path, Mapping[str, Any]]) -> None:
    """Write the index of a folder of figures: by file, what it was drawn from, and its hash."""
    hashed = {path.name: {"sha256": _hash(path), **drawn_from} for path, drawn_from in files.items()}
    write_json(folder / INDEX, {"schema": 1, "versions": versions(), "files": hashed})


def read_index(folder: Path, command: str) -> tuple[dict[str, Any], str]:
    """Read the index of a folder of figures: its files by name, and the libraries that have other versions here.

    Raises:
        SpecError: it cannot be read; `command` draws the figures.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        indexed, then = dict(index["files"]), dict(index["versions"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SpecError(f"{folder / INDEX}: cannot be read; draw with `{command}`") from None
    now = versions()
    other = (f"{name} {then.get(name)}, here {now[name]}" for name in now if then.get(name) != now[name])
    return indexed, ", ".join(other)


def check_paper(paper: Paper, reference: Path, scratch: Path) -> list[Difference]:
    """Draw into `scratch` and compare with the committed files, byte for byte.

    Raises:
        SpecError: nothing is committed, or a run is not recorded.
    """
    committed = reference / paper.name
    indexed, other = read_index(committed, f"wanbench figures --paper {paper.name}")
    checked = (_check(figure, paper, reference, scratch, indexed, other) for figure in paper.figures)
    differences = [difference for of_figure in checked for difference in of_figure]
    extra = {path.name for path in committed.iterdir() if path.suffix in _DRAWN} - indexed.keys()
    return differences + [Difference(name, "is none of the paper's figures", True) for name in sorted(extra)]


def _check(
    figure: PaperFigure, paper: Paper, reference: Path, scratch: Path, indexed: Mapping[str, Any], other: str
) -> list[Difference]:
    source = _source(figure, reference)
    names = [name for name in indexed if name.rpartition(".")[0] in {figure.name, f"{figure.name}-column"}]
    lost = _lost(next((indexed[name]["reps"] for name in names), {}), source.rows)
    if lost or source.problems:
        why = f"lost {listed(lost, 3)}" if lost else ""
        reason = "; ".join(filter(None, [why, *source.problems[:1]]))
        return [Difference(name, f"{reason} ({source.folder.path})", True) for name in names]
    return differing(_draw(figure, paper, source, scratch), reference / paper.name, indexed, other)


def differing(drawn: Iterable[Path], folder: Path, indexed: Mapping[str, Any], other: str) -> list[Difference]:
    """The committed files of a folder that differ from those drawn now, with `indexed` and `other` of its index."""
    differences = []
    for path in drawn:
        committed = folder / path.name
        if path.name not in indexed or not committed.is_file():
            differences.append(Difference(path.name, "is not committed", True))
        elif committed.read_bytes() != path.read_bytes():
            changed = _hash(committed) != indexed[path.name]["sha256"]
            why = "was changed after it was drawn" if changed else "would be drawn differently now"
            comparable = changed or not other
            differences.append(
                Difference(path.name, why if comparable else f"not comparable: drawn with {other}", comparable)
            )
    return differences


def refusals(paper: Paper, reference: Path) -> Iterator[str]:
    """Yield one line for each reason why a figure of this paper may not be published.

    The rule on accuracy refuses speeds that cost accuracy. A figure that shows this accuracy may have them.

    Raises:
        SpecError: a run is not recorded.
    """
    hiding_figures = [
        figure
        for figure in paper.figures
        if figure.kind not in {"learning", "pareto", "equivalence"} and not _LEARNED & {*figure.columns, *figure.y}
    ]
    for run in filter(None, dict.fromkeys(run for figure in paper.figures for run in (figure.run, figure.beside))):
        folder = recorded(reference, run)
        rows = folder.rows()
        broken = objections(rows, planned.read(folder.path).names)
        hiding = {row["cell"] for figure in hiding_figures if figure.run == run for row in select(figure, rows)}
        kept = [objection for objection in broken if objection.rule != _ACCURACY or objection.cell in hiding]
        yield from (f"{folder.path}: verify refuses it: {line}" for line in problem_lines(kept, run))


@dataclass(frozen=True)
class _Source:
    """What a figure is drawn from.

    Attributes:
        folder: the recording; of a figure without a run, the folder of all recordings. rows: those it selects.
        problems: lines that cannot be read. beside: rows of the run that is drawn beside it.
    """

    folder: RunFolder
    rows: Sequence[Row] = ()
    problems: Sequence[str] = ()
    beside: Sequence[Row] = ()


def _source(figure: PaperFigure, reference: Path) -> _Source:
    if figure.run is None:
        return _Source(RunFolder(reference))
    folder = recorded(reference, figure.run)
    stored = folder.read()
    beside = recorded(reference, figure.beside).rows() if figure.beside is not None else []
    return _Source(folder, select(figure, stored.rows), stored.problems, beside)


def _lost(reps: Mapping[str, Sequence[int | str]], rows: Sequence[Row]) -> list[str]:
    there = {(row["cell"], _rep(row)) for row in rows}
    return [
        f"{cell} rep {rep}" for cell, stored_reps in reps.items() for rep in stored_reps if (cell, rep) not in there
    ]


def _reps(rows: Sequence[Row]) -> dict[str, list[int | str]]:
    ordered = sorted(rows, key=lambda row: (row["cell"], row["rep"], row.get("host") or ""))
    return by_key((row["cell"], _rep(row)) for row in ordered)


def _rep(row: Row) -> int | str:
    """A repetition of a cell: its number, and its host if that was recorded."""
    return row["rep"] if row.get("host") is None else f"{row['rep']} on {row['host']}"


def recorded(reference: Path, run: str) -> RunFolder:
    """A recorded run. Raises: SpecError: it is not recorded."""
    if not (reference / run / "manifest.json").is_file():
        raise SpecError(f"{reference / run}: not recorded yet; run `wanbench record`")
    return open_run(run, reference)


def select(figure: PaperFigure, rows: Sequence[Row]) -> list[Row]:
    """The rows that a figure selects, and the one-worker rows that scalability needs."""
    return [
        row
        for row in rows
        if row["algorithm"] == BASELINE
        or (
            (not figure.algorithms or any(fnmatchcase(row["algorithm"], pattern) for pattern in figure.algorithms))
            and all(row.get(name) == value for name, value in figure.where.items())
        )
    ]


def _draw(figure: PaperFigure, paper: Paper, source: _Source, to: Path) -> list[Path]:
    with as_spec_error(f"{source.folder.path}: figure {figure.name}", AnalysisError):
        if figure.kind in _TABLES:
            path = to / f"{figure.name}.md"
            write_text(path, _TABLES[figure.kind](figure, source.rows, source.folder.name))
            return [path]
        return write_drawing(replace(_drawing(figure, paper, source), name=figure.name), to)


def write_drawing(drawing: Drawing, to: Path) -> list[Path]:
    """Write the files of a figure that are committed: pictures of a page, that of a column, and its points."""
    return [
        save(drawing.draw(PAGE_IN), to / f"{drawing.name}.svg"),
        save(drawing.draw(PAGE_IN), to / f"{drawing.name}.png"),
        save(drawing.draw(COLUMN_IN), to / f"{drawing.name}-column.pdf"),
        write_points(drawing.points(), to / f"{drawing.name}.csv"),
    ]


def _drawing(figure: PaperFigure, paper: Paper, source: _Source) -> Drawing:
    folder, rows = source.folder, source.rows
    if figure.kind == "map":
        return read_map(folder.path / f"{paper.name}-{figure.name}").drawing
    if figure.kind == "trend":
        return trend_drawing(figure, rows, folder.name, paper.citation, source.beside)
    if figure.kind == "scalability":
        return scalability_drawing(_pivot(figure, paper, source), folder.name)
    for drawing in gallery(rows, folder.name, Evidence(folder), kind=figure.kind):
        return drawing
    raise AnalysisError(f"these rows show no {figure.kind}")


def _pivot(figure: PaperFigure, paper: Paper, source: _Source) -> Pivot:
    """The only pivot of the rows, with a subject, a note, published values and another run beside it.

    Raises:
        AnalysisError: several pivots, a published value without a bar, or nothing to lay beside.
    """
    tables = pivots(frame(source.rows))
    if len(tables) != 1:
        raise AnalysisError(f"{len(tables)} figures instead of one; narrow it by `where`")
    (pivot,) = tables
    published = {}
    for value in figure.published:
        column = next((column for column in pivot.columns if str(column) == value.at), None)
        if (value.algorithm, column) not in pivot.lines:
            raise AnalysisError(f"published {value.algorithm} at {value.at}: no such bar is drawn")
        published[value.algorithm, column] = value.value
    sources = "; ".join(f"{value.value:g} {value.source}" for value in figure.published)
    cited = f"diamonds: published, {paper.citation} ({sources})" if sources else None
    note = "; ".join(filter(None, [cited, figure.note])) or None
    pivot = replace(pivot, heading=figure.subject, note=note, published=published)
    if figure.beside is None:
        return pivot
    pivot = lay_beside(pivot, source.beside, figure.beside)
    if pivot.beside is None:
        raise AnalysisError(f"{figure.beside} has no cell to lay beside it")
    return pivot


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
