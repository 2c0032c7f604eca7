"""How a column of the results is described, and the words of its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "invalid", "failed"]


@dataclass(frozen=True)
class Column:
    """The description of one column.

    Attributes:
        meaning: a sentence. unit: of the numbers. applies: the repetitions that have it; the others have null.
        minimum, above: inclusive and exclusive lower bound of the numbers.
        measure: a cell shows the median, minimum and maximum over its repetitions.
        shown: part of tables and CSV; the others are only in JSON and Parquet files.
    """

    meaning: str
    unit: str | None = None
    applies: str | None = None
    minimum: float | None = None
    above: float | None = None
    measure: bool = False
    shown: bool = True

    @property
    def text(self) -> str:
        """The meaning, and when the column is not null."""
        return self.meaning if self.applies is None else f"{self.meaning} Null except for {self.applies}."
