"""What others measured and published, beside what wanbench predicts for their conditions, and the figure of both.

    python benchmarks/published.py predict [SOURCE ...]     predicts again, simulated, and draws
    python benchmarks/published.py draw                     draws the figure from the recorded predictions
    python benchmarks/published.py check                    compares the committed figure with them, byte by byte

results/reference/published/NAME.toml           a source (`Source`): conditions and numbers as printed, tolerance
results/reference/published/predictions.jsonl   a line for each number under each reading

Where conditions are ambiguous, a source has several readings, each a spec, and counts at its worst.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import BaseModel, ConfigDict, Field, ValidationError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.errors import RepFailed, SpecError  # noqa: E402
from wanbench.harness.plan.auto import FixedHost  # noqa: E402
from wanbench.harness.plan.cell import TrainingCell  # noqa: E402
from wanbench.harness.plan.expand import expand  # noqa: E402
from wanbench.harness.plan.law import PredictInputs, round_trips  # noqa: E402
from wanbench.harness.rep.measure import measure  # noqa: E402
from wanbench.harness.results.columns import Row  # noqa: E402
from wanbench.harness.results.disk import write_text  # noqa: E402
from wanbench.harness.show.figures.drawing import Drawing, Point  # noqa: E402
from wanbench.harness.show.figures.hover import note  # noqa: E402
from wanbench.harness.show.figures.layout import Sheet, logarithmic, text_in  # noqa: E402
from wanbench.harness.show.figures.style import FAINT, PAGE_IN, wanbench_style  # noqa: E402
from wanbench.harness.show.papers.drawing import differing, read_index, write_drawing, write_index  # noqa: E402
from wanbench.harness.spec.experiment import Spec  # noqa: E402
from wanbench.harness.spec.tables import FailuresTable  # noqa: E402
from wanbench.harness.testbeds import opened  # noqa: E402
from wanbench.harness.testbeds.base import Testbed  # noqa: E402

FOLDER = ROOT / "results/reference/published"
NAME = "predicted-against-published"
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
        short: its title in the figure. kind: the shape of its points there.
        revision: commit, version or date. licence: of its files; facts need none.
        seen: whether wanbench was compared with it before its tolerance was chosen. primary: read at the original.
        tier: 1 complete conditions, 2 one ambiguous, 3 its authors' simulation or arithmetic, 4 no basis to predict.
        tolerance: relative error within which a prediction counts as right, chosen before any prediction.
        set_aside: predicted once, after all changes.
        changed: what was changed in wanbench after looking at it. cause: why predictions are beyond the tolerance.
    """

    title: str
    short: str
    kind: Literal["streams and messages", "all-reduces", "training steps", "failures and recovery"]
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
        raise SpecError(f"{path}: cannot be read; run `python benchmarks/published.py predict`") from None


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


# Predictions.

_DIGITS = 6


@dataclass(frozen=True)
class Times:
    """What a published quantity is computed from.

    Attributes:
        step_s, compute_s: seconds of a step and of its computation. period: steps between synchronisations.
        parameters: of the model. goodput: the share of steps that workers' losses leave.
        per_step, window: see `Number`.
    """

    step_s: float
    compute_s: float
    period: int
    parameters: int
    goodput: float | None
    per_step: float | None = None
    window: tuple[int, int] | None = None

    @property
    def communication_s(self) -> float:
        """Seconds of a step in which workers wait for others."""
        return self.step_s - self.compute_s

    def per_communication(self, amount: float) -> float | None:
        """An amount per second of communication. None where a law knows no communication."""
        return amount / self.communication_s if self.communication_s else None

    def utilisation(self) -> float:
        """The share of the published window, or of all time, that is computation."""
        steps, synchronisations = self.window or (self.period, 1)
        compute_s = steps * self.compute_s
        return compute_s / (compute_s + synchronisations * self.period * self.communication_s)

    def rate(self) -> float | None:
        """Samples or tokens in a second."""
        return None if self.per_step is None else self.per_step / self.step_s


QUANTITIES: Mapping[str, Callable[[Times], float | None]] = {
    "all_reduce_s": lambda times: times.communication_s,
    "transfer_s": lambda times: times.communication_s,
    "throughput_bps": lambda times: times.per_communication(32 * times.parameters),
    "step_time_s": lambda times: times.step_s,
    "round_s": lambda times: times.period * times.step_s,
    "tokens_per_s": Times.rate,
    "samples_per_s": Times.rate,
    "compute_utilisation": Times.utilisation,
    "granularity": lambda times: times.per_communication(times.compute_s),
    "efficiency": lambda times: times.goodput,
}
"""By name; others are of no column of wanbench, and have no prediction."""


def predictions(name: str, source: Source, folder: Path) -> Iterator[dict[str, Any]]:
    """Predict every number of a source under every reading.

    Args:
        folder: the catalogue's; profiles of readings are relative to it.

    Yields:
        A line of the comparison: the number, the prediction, that of `plain_step_s`, and `why` if there is none.
    """
    with tempfile.TemporaryDirectory() as scratch, closing(opened("virtual", Path(scratch))) as testbed:
        for reading in source.reading:
            done: dict[str, tuple[TrainingCell, Times | None, str]] = {}
            for number in source.number:
                key = json.dumps(number.set, sort_keys=True)
                if key not in done:
                    done[key] = _simulated(reading, number, folder, testbed, Path(scratch))
                yield {"source": name, "reading": reading.name, **_line(number, *done[key])}


def _simulated(
    reading: Reading, number: Number, folder: Path, testbed: Testbed, scratch: Path
) -> tuple[TrainingCell, Times | None, str]:
    where = str(folder / reading.name)
    spec = Spec.from_toml(reading.spec, where).override(number.set, where)
    (cell,) = (
        cell
        for cell in expand(spec, where, FixedHost())
        if isinstance(cell, TrainingCell) and not cell.is_baseline and cell.workers > 1
    )
    try:
        rows = _rows(cell, spec.run.repeats, testbed, scratch)
        step_s = _median_step_s(rows)
        if not cell.loses_workers:
            return cell, _times(cell, step_s), ""
        without_faults = _rows(replace(cell, timeline=(), failures=FailuresTable()), 1, testbed, scratch)
    except RepFailed as error:
        return cell, None, str(error)
    lossy = rows[0]
    trained = (lossy["counted_steps"] or 0) / (lossy["steps"] or 1) / cell.workers
    return cell, _times(cell, step_s, trained * _median_step_s(without_faults) / step_s), ""


def _rows(cell: TrainingCell, repeats: int, testbed: Testbed, scratch: Path) -> list[Row]:
    slot = testbed.open_slot("")
    folders = [Path(tempfile.mkdtemp(dir=scratch)) for _ in range(repeats)]
    return [measure(cell.repetition(rep), slot, part, scratch, None) for rep, part in enumerate(folders)]


def _median_step_s(rows: Sequence[Row]) -> float:
    return statistics.median(row["step_time_s"] or 0.0 for row in rows)


def _times(cell: TrainingCell, step_s: float, goodput: float | None = None) -> Times:
    compute_s = cell.workload.step_time_s
    assert compute_s is not None, "the simulated clock needs it"
    return Times(step_s, compute_s, cell.algorithm().period_steps, cell.workload.params, goodput)


def plain_step_s(inputs: PredictInputs) -> float:
    """The alpha-beta law with headers, of what a reader works out by hand: Tc + (2(N-1)/N M / rate + rounds RTT) / p.

    With a delay, communication is hidden as far as computation lasts. It knows no chunks, slow start, loss or queue.
    """
    n, rate = inputs.workers, inputs.rate_bytes_per_s
    wire_s = 2 * (n - 1) / n * inputs.message_bytes / rate if rate is not None else 0.0
    all_reduce_s = wire_s + round_trips(inputs.collective, n, inputs.message_bytes) * inputs.rtt_s
    if inputs.delay:
        return max(inputs.step_time_s, all_reduce_s / inputs.period)
    return inputs.step_time_s + all_reduce_s / inputs.period


def _line(number: Number, cell: TrainingCell, times: Times | None, why: str) -> dict[str, Any]:
    quantity = QUANTITIES.get(number.quantity)
    if quantity is None:
        times, why = None, f"wanbench has no {number.quantity}"
    predicted = _of(quantity, times, number)
    if predicted is None and not why:
        why = "computation hides all communication"
    lossy = cell.loses_workers
    plain = None if lossy else _of(quantity, _times(cell, plain_step_s(cell.law_inputs)), number)
    return {
        **number.model_dump(include={"where", "quantity", "unit", "printed", "value", "spread"}),
        **({"fitted": True} if number.fitted else {}),
        "predicted": predicted,
        "error": _error(predicted, number.value),
        "plain": plain,
        "plain_error": _error(plain, number.value),
        "why": why or None,
    }


def _of(quantity: Callable[[Times], float | None] | None, times: Times | None, number: Number) -> float | None:
    if quantity is None or times is None:
        return None
    value = quantity(replace(times, per_step=number.per_step, window=number.window))
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _error(predicted: float | None, published: float) -> float | None:
    return None if predicted is None else round(predicted / published - 1, 4)


def record(folder: Path, sources: Mapping[str, Source], jobs: int) -> Path:
    """Predict the numbers of these sources, keep the lines of others, and write all. Return the file's path.

    Args:
        jobs: processes that predict side by side, a source each.
    """
    path = folder / PREDICTIONS
    lines = [line for line in read(path) if line["source"] not in sources] if path.exists() else []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_predicted, name, source, folder): name for name, source in sources.items()}
        for done, future in enumerate(as_completed(futures), start=1):
            lines += future.result()
            print(f"[{done}/{len(futures)}] {futures[future]}: {len(future.result())} predictions", file=sys.stderr)
    lines.sort(key=lambda line: line["source"])  # stable: readings and numbers keep the order of their file
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def _predicted(name: str, source: Source, folder: Path) -> list[dict[str, Any]]:
    return list(predictions(name, source, folder))


# The figure.

_LOOKS: Mapping[str, Mapping[str, Any]] = {
    kind: {"color": colour, "marker": marker, "markersize": 3.2, "markeredgewidth": 0.6, "fillstyle": "none", "ls": ""}
    for kind, colour, marker in (
        ("streams and messages", "#4477AA", "o"), ("all-reduces", "#228833", "^"), ("training steps", "#222222", "s"),
        ("failures and recovery", "#AA3377", "X"),
    )
}  # fmt: skip


def agreement_drawing() -> Drawing:
    """The figure of the recorded predictions. Raises: SpecError: nothing was predicted."""
    sources = load(FOLDER)
    lines = counted(sources, read(FOLDER / PREDICTIONS))
    blind = {name: of_source for name, of_source in lines.items() if not sources[name].seen}
    nearer, farther = compared({name: Agreement.of(sources[name], of_source) for name, of_source in blind.items()})
    together = Agreement.together(sources, blind)
    title = (
        f"Blind: {together.near} of {len(together.errors)} numbers are predicted within {100 * NEAR:.0f} %; "
        f"nearer than the plain law for {len(nearer)} sources, farther for {len(farther)}"
    )
    about = (
        "A point is a published number and its prediction, which is simulated; nothing is fitted to what is drawn. "
        "Of rates and shares the reciprocal is drawn, so that to the right all predictions are too slow. In brackets: "
        f"numbers. A source counts at its worst reading. Band: {100 * NEAR:.0f} % to either side. Blind: nobody had "
        "compared before the tolerance was chosen."
    )
    text = f"{title}\nPredicted time over published time, by source"
    return Drawing(
        NAME,
        title,
        lambda width: agreement(sources, lines, text, about, width),
        lambda: agreement_points(sources, lines),
    )


@wanbench_style()
def agreement(
    sources: Mapping[str, Source],
    lines: Mapping[str, Sequence[Line]],
    title: str,
    about: str,
    width_in: float = PAGE_IN,
) -> Figure:
    """A row of ratios for each source, first of those that are blind.

    Args:
        lines: by source, under the reading at which it counts. title: the finding, and the subject. about: the caption.
    """
    drawn = {name: ratios for name, of_source in lines.items() if (ratios := _ratios(of_source))}
    rows: list[str] = []
    for seen, heading in ((False, "blind"), (True, "seen before")):
        names = [name for name in drawn if sources[name].seen is seen]
        rows += [heading, *sorted(names, key=lambda name: [*_LOOKS].index(sources[name].kind))]
    entries = {kind: Line2D([], [], **look) for kind, look in _LOOKS.items()}
    titles = [f"{sources[name].short} ({len(drawn[name])})" if name in drawn else name for name in rows]
    left_in = 0.15 + max(text_in(title, 6.5) for title in titles)
    sheet = Sheet(width_in, 0.155 * len(rows), title, about, entries, left_in=left_in)
    axes = sheet.axes()
    axes.axvspan(1 - NEAR, 1 + NEAR, color=FAINT, alpha=0.15, linewidth=0)
    axes.axvline(1, color=FAINT, linewidth=0.5)
    for row, name in enumerate(rows):
        for index, ratio in enumerate(drawn.get(name, ())):
            y = row - 0.35 + 0.7 * (index + 0.5) / len(drawn[name])  # in the order of the source
            axes.plot(ratio, y, **_LOOKS[sources[name].kind])
            note(axes, ratio, y, f"{sources[name].title}: predicted {ratio:.3g} times the published time")
    for label, name in zip(axes.set_yticks(range(len(rows)), titles), rows, strict=True):
        label.label1.set_fontweight("normal" if name in drawn else "bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    every = [ratio for ratios in drawn.values() for ratio in ratios]
    logarithmic(axes.xaxis, min(every) / 1.3, max(every) * 1.3)
    axes.set_xlabel("predicted over published")
    for x, text, side in ((0.02, "← too fast", "left"), (0.98, "too slow →", "right")):
        axes.text(x, 0, text, transform=axes.get_yaxis_transform(), ha=side, va="center", color=FAINT, fontsize=6.5)
    return sheet.figure


def _ratios(lines: Sequence[Line]) -> list[float]:
    """Predicted over published of the times that are not fitted; published over predicted of rates and shares."""
    pairs = [(line["predicted"], line["value"], line["unit"]) for line in lines if not line.get("fitted")]
    return [predicted / value if unit == "s" else value / predicted for predicted, value, unit in pairs if predicted]


def agreement_points(sources: Mapping[str, Source], lines: Mapping[str, Sequence[Line]]) -> list[Point]:
    """Every number with its errors, also those that are not drawn, or have no prediction."""
    return [
        {
            "source": name,
            "seen": sources[name].seen,
            "tier": sources[name].tier,
            "tolerance": sources[name].tolerance,
            "fitted": line.get("fitted", False),
            **{key: line[key] for key in ("reading", "where", "quantity", "unit", "printed", "value")},
            "smallest": (line["spread"] or [None, None])[0],
            "largest": (line["spread"] or [None, None])[1],
            **{key: line[key] for key in ("predicted", "error", "plain", "plain_error", "why")},
        }
        for name, of_source in lines.items()
        for line in of_source
    ]


def draw() -> list[Path]:
    """Draw the committed figure again. Return its files."""
    files = write_drawing(agreement_drawing(), FOLDER)
    write_index(FOLDER, {path: {"run": None, "reps": {}} for path in files})
    return files


def check() -> int:
    """Print how the committed figure differs from the one drawn now.

    Return 0 if it does not, 5 if only other versions of libraries can be the reason, else 1.
    """
    with tempfile.TemporaryDirectory() as scratch:
        indexed, other = read_index(FOLDER, "python benchmarks/published.py draw")
        differences = differing(write_drawing(agreement_drawing(), Path(scratch)), FOLDER, indexed, other)
    for difference in differences:
        print(f"{FOLDER / difference.file}: {difference.why}")
    return min((1 if difference.comparable else 5 for difference in differences), default=0)


def main() -> int:
    """Predict, draw or check."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = options.add_subparsers(dest="command", required=True)
    predicting = commands.add_parser("predict")
    predicting.add_argument("source", nargs="*", help="only these; default: all")
    predicting.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    commands.add_parser("draw")
    commands.add_parser("check")
    asked = options.parse_args()
    try:
        if asked.command == "check":
            return check()
        if asked.command == "predict":
            print(record(FOLDER, _chosen(asked.source), asked.jobs))
        print(*draw(), sep="\n")
    except SpecError as error:
        sys.exit(f"published.py: {error}")
    return 0


def _chosen(names: Sequence[str]) -> dict[str, Source]:
    sources = load(FOLDER)
    for name in names:
        if name not in sources:
            raise SpecError(f"{name}: not a source; expected one of {', '.join(sources)}")
    return {name: source for name, source in sources.items() if name in names or not names}


if __name__ == "__main__":
    sys.exit(main())
