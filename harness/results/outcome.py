"""What was measured at one commit: every metric of every cell. One line of the file that `check --append` writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from wanbench.harness.errors import printable

Numbers = Annotated[list[float], Field(min_length=1, max_length=3)]
Text = Annotated[str, Field(max_length=1000), AfterValidator(printable)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class CellOutcome(_Strict):
    """One cell.

    Attributes:
        cell: its identity. code: hash of the code that measured it. Both are None if they are not known.
        repeats: number of valid repetitions. verdict: of the gate, None without one.
        metrics: by name of column, [value], or [median, minimum, maximum] of several repetitions.
    """

    cell: Text | None = None
    testbed: Text
    emulator: Text | None = None
    code: Text | None = None
    repeats: Annotated[int, Field(ge=0)] = 1
    verdict: Text | None = None
    metrics: dict[str, Numbers]


class Outcome(_Strict):
    """One commit.

    Attributes:
        commit: its hash. dirty: some files differed from it. date: of the commit. None if they are not known.
        verdict: the worst of the gate; None without one.
        wanbench, torch, processor, kernel: what measured, if it is known.
        cells: by name.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    experiment: Text
    commit: Annotated[str, Field(pattern="^[0-9a-f]{7,64}$")] | None = None
    dirty: bool = False
    subject: Text | None = None
    date: Text | None = None
    verdict: Text | None = None
    wanbench: Text | None = None
    torch: Text | None = None
    processor: Text | None = None
    kernel: Text | None = None
    cells: dict[Text, CellOutcome]

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics that any cell has."""
        return {name for cell in self.cells.values() for name in cell.metrics}
