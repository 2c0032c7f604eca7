"""Predicts what others measured and published, from their conditions alone (`analysis.published` has the catalogue)."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.analysis.published import PREDICTIONS, Number, Reading, Source, read
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.plan.law import PredictInputs, round_trips
from wanbench.harness.rep.measure import measure
from wanbench.harness.results.columns import Row
from wanbench.harness.results.disk import write_text
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.tables import FailuresTable
from wanbench.harness.testbeds import opened
from wanbench.harness.testbeds.base import Testbed

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
        "amount": _amount(number, cell),
        "why": why or None,
    }


def _amount(number: Number, cell: TrainingCell) -> float | None:
    """What a rate counts, so that its seconds are known: bits, samples or tokens."""
    return 32.0 * cell.workload.params if number.quantity == "throughput_bps" else number.per_step


def _of(quantity: Callable[[Times], float | None] | None, times: Times | None, number: Number) -> float | None:
    if quantity is None or times is None:
        return None
    value = quantity(replace(times, per_step=number.per_step, window=number.window))
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _error(predicted: float | None, published: float) -> float | None:
    return None if predicted is None else round(predicted / published - 1, 4)


def record(folder: Path, sources: Mapping[str, Source], jobs: int, say: Callable[[str], None]) -> Path:
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
            say(f"[{done}/{len(futures)}] {futures[future]}: {len(future.result())} predictions")
    lines.sort(key=lambda line: line["source"])  # stable: readings and numbers keep the order of their file
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def _predicted(name: str, source: Source, folder: Path) -> list[dict[str, Any]]:
    return list(predictions(name, source, folder))
