"""What a run shows of itself in a notebook or a Python prompt: a summary, tables and pictures."""

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from html import escape
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from wanbench.harness.analysis.best import networks
from wanbench.harness.analysis.summary import AnalysisError, Row
from wanbench.harness.show.figures.drawing import Drawing
from wanbench.harness.show.figures.style import PAGE_IN

_MEASURES = (
    *("algorithm", "scalability", "step_time_s", "accuracy", "accuracy_change", "not_compared"),
    *("time_to_target_s", "megabytes_per_step", "unscaled_megabytes_per_step"),
)
_MAX_NETWORKS = 8
_DPI = 110


def summary(rows: Sequence[Row]) -> str:
    """Return one line: "14 cells ok, 1 failed; emulated by relay on netns"."""
    cells = {row["cell"]: row["status"] for row in sorted(rows, key=lambda row: row["status"] == "ok")}
    if not cells:
        return "nothing measured yet"
    (status, number), *rest = sorted(Counter(cells.values()).items(), key=lambda entry: (entry[0] != "ok", entry[0]))
    first = f"{number} cell{'s' * (number != 1)} {status}"
    return f"{', '.join([first, *(f'{count} {status}' for status, count in rest)])}; {_provenance(rows)}"


def _provenance(rows: Sequence[Row]) -> str:
    emulators: dict[str, set[str]] = {}
    for row in rows:
        emulators.setdefault(row["testbed"], set()).update(filter(None, [row["emulator"]]))  # one worker needs none
    simulated = ["simulated (virtual)"] if emulators.pop("virtual", None) is not None else []
    by = {testbed: f" by {' and '.join(sorted(names))}" if names else "" for testbed, names in emulators.items()}
    return " and ".join([*(f"emulated{by[testbed]} on {testbed}" for testbed in sorted(by)), *simulated])


class BestTable(pd.DataFrame):
    """A table that displays its main columns; all columns can be selected."""

    def shown(self) -> pd.DataFrame:
        """The axes of the networks, the algorithm, and what it achieves."""
        algorithm = list(self.columns).index("algorithm") if "algorithm" in self else 0
        return pd.DataFrame(self)[[*self.columns[:algorithm], *(name for name in _MEASURES if name in self)]]

    def __repr__(self) -> str:
        return self.shown().to_string(index=False, float_format="{:.4g}".format)

    def _repr_html_(self) -> str:
        return self.shown().to_html(index=False, border=0, float_format="{:.4g}".format, na_rep="")


def best(rows: Sequence[Row]) -> BestTable:
    """The best algorithm on each network; see `Run.best`. Raises: AnalysisError: no result is valid."""
    standings, lines = networks(rows), list[dict[str, Any]]()
    if not standings:
        raise AnalysisError("no cell with more than one worker has a valid result yet, so there is nothing to compare")
    for network in standings:
        values = {} if network.best is None else asdict(network.best)
        paired = values.pop("paired", None) or {}
        first = {name: values.pop(name, None) for name in _MEASURES}
        equally_fast = [standing.algorithm for standing in network.as_fast]
        pairs = {"pairs" if name == "count" else f"paired_{name}": value for name, value in paired.items()}
        lines.append({**network.where, **first, "equally_fast": equally_fast, **values, **pairs})
    return BestTable(pd.DataFrame(lines).dropna(axis=1, how="all"))


def run_html(name: str, rows: Sequence[Row]) -> str:
    """The summary of a run as HTML, above the best algorithm on each of its first networks."""
    text = f"<p><strong>{escape(name)}</strong>: {escape(summary(rows))}</p>"
    try:
        best_networks = best(rows)
    except AnalysisError:
        return text
    more = len(best_networks) - _MAX_NETWORKS
    table = BestTable(best_networks.head(_MAX_NETWORKS))._repr_html_()
    return f"{text}<p>Best algorithm in each case:</p>{table}" + (f"<p>and {more} more</p>" if more > 0 else "")


class Picture:
    """A figure of a run, which displays itself in a notebook.

    Attributes:
        name: the name of its files. title: its heading in the report.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.name, self.title, self._drawing = drawing.name, drawing.title, drawing

    @cached_property
    def figure(self) -> Figure:
        """The matplotlib figure in page width, to change or to save."""
        return self._drawing.draw(PAGE_IN)

    def __repr__(self) -> str:
        return f"<Picture {self.name}>"

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
        return buffer.getvalue()


class Pictures(dict[str, Picture]):
    """Figures by name, which a notebook displays one below the other."""

    def _repr_html_(self) -> str:
        return "\n".join(
            f'<h4>{escape(picture.title)}</h4><img alt="{escape(name)}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(picture._repr_png_()).decode()}">'
            for name, picture in self.items()
        )
