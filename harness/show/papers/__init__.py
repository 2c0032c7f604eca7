"""Figure sets of papers: one declarative file per paper names the recorded runs from which its figures are drawn.

    <name>.toml     title, citation, runs (experiments), figures, published values
    load(name)      as typed data, or one clear line
    drawing.py      draws and compares, and says what may not be published; table.py and trend.py: two kinds of figure

Published values are those that a paper prints as text. Values that exist only in a picture are left out.
"""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wanbench.harness.errors import SpecError

_HERE = Path(__file__).parent

Kind = Literal[
    "scalability",
    "pareto",
    "learning",
    "timeline",
    "network",
    "table",
    "equivalence",
    "trend",
    "map",
    "goodput",
]
_KINDS_WITH = {  # a key: the kinds that have it; the others compute it, or have no use for it
    "title": ("table", "equivalence", "trend"),
    "subject": ("scalability", "trend"),
    "beside": ("scalability", "trend"),
}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Published(_Table):
    """A value that the paper prints.

    Attributes:
        algorithm, at: the algorithm, and the value of the column axis. source: the place in the paper.
        mark: a word beside it in a table, such as "fitted".
    """

    algorithm: str
    at: str
    value: float
    source: str
    mark: str = ""


class PaperFigure(_Table):
    """One figure.

    Attributes:
        name: of its files. run: the recorded run, if its kind has one. kind: how it is drawn.
        algorithms: labels, "delayed-*" matches several; empty is all. where: rows to keep, by column.
        title: of a trend, a table or an equivalence. In a trend, "{series|x|measure}" is replaced by the value that is
        drawn; the other kinds compute their title.
        subject: the line below the title, instead of the workload and collective.
        published: values to draw beside ours, with their source in the caption.
        published_in: another figure, whose list of published values is used.
        beside: another run of the paper, simulated, that is drawn dashed.
        note: added to the caption. columns: of a table.
        primary: of an equivalence, the method whose comparison was declared the primary one.
        x, y, series: of a trend, as `harness.show.papers.trend.trend_drawing` reads them.
    """

    name: str
    run: str | None = None
    kind: Kind
    algorithms: list[str] = []
    where: dict[str, float | int | str] = {}
    title: str | None = None
    subject: str | None = None
    published: list[Published] = []
    published_in: str | None = None
    beside: str | None = None
    note: str | None = None
    columns: list[str] = []
    primary: str | None = None
    x: str | None = None
    y: list[str] = []
    series: str = "algorithm"


class Paper(_Table):
    """A paper's figure set: the whole file.

    Attributes:
        name: as on the command line. runs: experiments, in the order of recording.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: str
    title: str
    citation: str
    runs: list[str] = Field(alias="run")
    figures: list[PaperFigure] = Field(alias="figure")


def names() -> list[str]:
    """The known papers."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def load(name: str) -> Paper:
    """Read a paper's file. Raises: SpecError: there is no such paper, or its file is wrong."""
    path = _HERE / f"{name}.toml"
    if name not in names():
        raise SpecError(f"paper {name!r}: not known; expected one of {', '.join(names())}, or all")
    return parse(name, path.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Paper:
    """A paper from the text of its file. Raises: SpecError."""
    file = f"papers/{name}.toml"
    try:
        paper = Paper.model_validate({**tomllib.loads(text), "name": name})
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    for figure in paper.figures:
        where = f"{file}: figure {figure.name}"
        if figure.kind == "map" and figure.run is not None:
            raise SpecError(f"{where}: run: a map has none; remove the key")
        for run in () if figure.kind == "map" else (figure.run, figure.beside or figure.run):
            if run not in paper.runs:
                raise SpecError(f"{where}: {run!r}: expected one of the paper's runs")
        for key, kinds in _KINDS_WITH.items():
            if getattr(figure, key) is not None and figure.kind not in kinds:
                raise SpecError(f"{where}: {key}: expected in {', '.join(kinds)} only; remove the key")
        if {figure.x is not None, bool(figure.y)} != {figure.kind == "trend"}:
            raise SpecError(f"{where}: x, y: expected both for a trend, and neither for others")
    return paper.model_copy(update={"figures": [_with_published(figure, paper, file) for figure in paper.figures]})


def _with_published(figure: PaperFigure, paper: Paper, file: str) -> PaperFigure:
    if figure.published_in is None:
        return figure
    other = next((other for other in paper.figures if other.name == figure.published_in), None)
    if other is None:
        raise SpecError(f"{file}: figure {figure.name}: published_in: no figure {figure.published_in!r}")
    patterns = figure.algorithms or ["*"]
    kept = [value for value in other.published if any(fnmatchcase(value.algorithm, pattern) for pattern in patterns)]
    return figure.model_copy(update={"published": kept})
