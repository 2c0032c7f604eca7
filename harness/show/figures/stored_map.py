"""A map of best settings as a file, from which its figure and its points are drawn again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.results.disk import write_text
from wanbench.harness.show.figures import save_all
from wanbench.harness.show.figures.gallery import Drawing
from wanbench.harness.show.figures.map import MapData, best_map, coverage, finding

FILE = "map.json"
_DIGITS = 4


@dataclass(frozen=True)
class StoredMap:
    """What is drawn, with its subject (workload and workers) and its caption."""

    data: MapData
    subject: str
    caption: str

    @property
    def title(self) -> str:
        """The finding, and the subject in a second line."""
        return f"{finding(self.data)}\n{self.subject}"

    @property
    def drawing(self) -> Drawing:
        """Its figure, and its points."""
        about = f"{self.caption} {coverage(self.data)}"
        return Drawing(
            "map", self.title, lambda width_in: best_map(self.data, self.title, about, width_in), self.points
        )

    def points(self) -> list[Mapping[str, Any]]:
        """A line for each network."""
        data = self.data
        return [
            {
                "rtt_ms": rtt_ms,
                "rate_mbit": mbit,
                "best": data.names[row][column],
                "gain_over_ssgd": data.gains[row][column],
                "faster_setting_of_unknown_accuracy": data.unknown[row][column],
            }
            for row, mbit in enumerate(data.mbits)
            for column, rtt_ms in enumerate(data.rtts_ms)
        ]


def write(found: StoredMap, folder: Path) -> list[Path]:
    """Write the file, the figure in every format and its points. Return their paths."""
    return [store(found, folder), *save_all(read(folder).drawing, folder)]


def store(found: StoredMap, folder: Path) -> Path:
    """Write the file alone."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FILE, json.dumps(_plain(found), separators=(",", ":"), allow_nan=False) + "\n")
    return folder / FILE


def _check_numbers(values: Iterable[Any]) -> None:
    """Raises: ValueError: a value is not a positive number."""
    for value in values:
        if not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"expected positive numbers, got {value!r}")


def _plain(found: StoredMap) -> dict[str, Any]:
    data, names = found.data, list(found.data.kinds)
    place = {name: index for index, name in enumerate(names)}
    return {
        "schema": 1,
        "title": found.title,
        "caption": found.caption,
        "rtts_ms": _rounded(data.rtts_ms),
        "rates_mbit": _rounded(data.mbits),
        "settings": [{"name": name, "kind": data.kinds[name]} for name in names],
        "best": [[place[name] for name in row] for row in data.names],
        "gain_over_ssgd": [_rounded(row) for row in data.gains],
        "faster_setting_of_unknown_accuracy": [[int(each) for each in row] for row in data.unknown],
        "here": data.here,
        "checks": [[*_rounded(check[:2]), check[2]] for check in data.checks],
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def read(folder: Path) -> StoredMap:
    """Read the file of a folder.

    Raises:
        SpecError: it is missing, or is not such a file.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != 1:
            raise ValueError(f"schema {found['schema']}")
        names = [str(each["name"]) for each in found["settings"]]
        data = MapData(
            found["rtts_ms"],
            found["rates_mbit"],
            [[names[index] for index in row] for row in found["best"]],
            found["gain_over_ssgd"],
            [[bool(each) for each in row] for row in found["faster_setting_of_unknown_accuracy"]],
            {str(each["name"]): str(each["kind"]) for each in found["settings"]},
            None if found["here"] is None else (found["here"][0], found["here"][1]),
            [(rtt_ms, mbit, bool(same)) for rtt_ms, mbit, same in found["checks"]],
        )
        subject, caption = str(found["title"]).rpartition("\n")[2], str(found["caption"])
        _check_numbers([*data.rtts_ms, *data.mbits, *(gain for row in data.gains for gain in row), *(data.here or ())])
        _check_numbers([value for rtt_ms, mbit, _ in data.checks for value in (rtt_ms, mbit)])
        if min(len(data.rtts_ms), len(data.mbits)) < 2:
            raise ValueError("expected at least two round trips and two rates")
        for rows in (data.names, data.gains, data.unknown):
            if [len(row) for row in rows] != [len(data.rtts_ms)] * len(data.mbits):
                raise ValueError(f"expected {len(data.mbits)} rows of {len(data.rtts_ms)} points")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); make it with `wanbench map`") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SpecError(f"{path}: not a map ({error}); make it again with `wanbench map`") from None
    return StoredMap(data, subject, caption)
