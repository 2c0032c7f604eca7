"""What others measured and published, beside what wanbench predicts for it. Pure.

results/reference/published/NAME.toml           a source (`Source`): conditions and numbers as printed, tolerance
results/reference/published/predictions.jsonl   a line for each number under each reading (`harness.published`)

Where conditions are ambiguous, a source has several readings, each a spec, and counts at its worst.
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wanbench.harness.errors import SpecError

PREDICTIONS = "predictions.jsonl"
NEAR = 0.10
Line = Mapping[str, Any]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reading(_Table):
    """One way to map the printed conditions to a spec.

    Attributes:
        chosen: what had to be chosen, and why. spec: its text.
    """

    name: str
    chosen: str
    spec: str


class Number(_Table):
    """A printed number.

    Attributes:
        where: file and line, or table and row. printed: as it stands there. value: the same in `unit`.
        spread: the smallest and the largest measurement, if they are published.
        per_step: samples or tokens that all workers together process in a step, for a number per second.
        window: steps of the published measurement, and the synchronisations among them, where periods do not divide it.
        fitted: whether constants of the readings were found from it; it counts in no share and is not drawn.
        set: what differs from the spec of a reading, by dotted key.
    """

    where: str
    printed: str
    value: float
    unit: str
    quantity: str
    spread: tuple[float, float] | None = None
    per_step: float | None = None
    window: tuple[int, int] | None = None
    fitted: bool = False
    set: dict[str, Any] = {}


class Source(_Table):
    """A published set of measurements.

    Attributes:
        revision: commit, version or date. licence: of its files; facts need none.
        seen: whether wanbench was compared with it before its tolerance was chosen. primary: read at the original.
        tier: 1 complete conditions, 2 one ambiguous, 3 its authors' simulation or arithmetic, 4 no basis to predict.
        tolerance: relative error within which a prediction counts as right, chosen before any prediction.
        set_aside: predicted once, after all changes.
        changed: what was changed in wanbench after looking at it. cause: why predictions are beyond the tolerance.
    """

    title: str
    citation: str
    url: str
    revision: str
    licence: str
    seen: bool
    primary: bool
    tier: int = Field(ge=1, le=4)
    tolerance: float = Field(gt=0)
    why_tolerance: str
    set_aside: bool
    changed: str = ""
    cause: str = ""
    conditions: dict[str, str]
    reading: list[Reading] = Field(min_length=1)
    number: list[Number] = Field(min_length=1)


def load(folder: Path) -> dict[str, Source]:
    """The sources of a catalogue by name. Raises: SpecError."""
    sources = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            sources[path.stem] = Source.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{path}: not valid TOML: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise SpecError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return sources


def read(path: Path) -> list[Line]:
    """The lines of a comparison. Raises: SpecError: there is none."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        raise SpecError(f"{path}: cannot be read; run `wanbench record published`") from None


@dataclass(frozen=True)
class Agreement:
    """How near predictions are to the numbers of a source, or of several.

    Attributes:
        numbers: published, without those that are fitted.
        errors: those of the predictions. plain: those of the plain law.
        within: predictions within the tolerance. near, plain_near: within 10 %.
    """

    numbers: int
    errors: Sequence[float]
    plain: Sequence[float]
    within: int

    @classmethod
    def of(cls, source: Source, lines: Iterable[Line]) -> Agreement:
        """The agreement of lines of one source."""
        return cls.together({"": source}, {"": lines})

    @classmethod
    def together(cls, sources: Mapping[str, Source], lines: Mapping[str, Iterable[Line]]) -> Agreement:
        """The agreement of the lines of several sources, by name."""
        pairs = [(sources[name], line) for name in lines for line in lines[name] if not line.get("fitted")]
        errors = [(source, line["error"]) for source, line in pairs if line["error"] is not None]
        plain = [line["plain_error"] for _, line in pairs if line["plain_error"] is not None]
        within = sum(abs(error) <= source.tolerance for source, error in errors)
        return cls(len(pairs), [error for _, error in errors], plain, within)

    @property
    def near(self) -> int:
        return sum(abs(error) <= NEAR for error in self.errors)

    @property
    def plain_near(self) -> int:
        return sum(abs(error) <= NEAR for error in self.plain)

    @property
    def worst(self) -> float | None:
        return max(self.errors, key=abs, default=None)

    @property
    def median(self) -> float | None:
        """The median size of the errors."""
        return statistics.median(map(abs, self.errors)) if self.errors else None

    @property
    def plain_median(self) -> float | None:
        """The median size of the plain law's errors."""
        return statistics.median(map(abs, self.plain)) if self.plain else None


def compared(agreements: Mapping[str, Agreement]) -> tuple[list[str], list[str]]:
    """The sources with a smaller median error than the plain law's, and those with a larger one."""
    pairs = [(name, agreement.median, agreement.plain_median) for name, agreement in agreements.items()]
    both = [(name, ours - plain) for name, ours, plain in pairs if ours is not None and plain is not None]
    return [name for name, difference in both if difference < 0], [name for name, difference in both if difference > 0]


def counted(sources: Mapping[str, Source], lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each source under the reading at which it counts: that with the fewest numbers within tolerance.

    Among equal ones, it is the one with the largest error.
    """
    by_reading: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        by_reading.setdefault(line["source"], {}).setdefault(line["reading"], []).append(line)

    def badness(name: str, reading: Sequence[Line]) -> tuple[int, float]:
        agreement = Agreement.of(sources[name], reading)
        return -agreement.within, abs(agreement.worst or 0.0)

    return {
        name: max(readings.values(), key=lambda reading, name=name: badness(name, reading))  # type: ignore[misc]
        for name, readings in by_reading.items()
        if name in sources
    }
