"""What a trial on real hosts measured, beside what `advise` predicted, and the likely cause of a difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles

from wanbench.harness.advise.files import BAND, JSON
from wanbench.harness.errors import SpecError
from wanbench.netprofiles import FileError
from wanbench.netprofiles.user_file import read_text

_FEWEST = 20
_RARE = 0.1  # share of the steps that are rare
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class TrialResult:
    """A setting's step time in seconds, predicted and measured, and the likely cause if they differ by over 10 %."""

    setting: str
    predicted_s: float
    measured_s: float
    steps: int
    cause: str

    @property
    def difference(self) -> float:
        """Relative to the prediction."""
        return self.measured_s / self.predicted_s - 1

    def text(self) -> str:
        """One line, and one for the cause."""
        line = (
            f"{self.setting}: predicted {1e3 * self.predicted_s:.4g} ms a step, measured "
            f"{1e3 * self.measured_s:.4g} ms ({self.difference:+.1%}) in {self.steps} steps"
        )
        return f"{line}\nlikely cause: {self.cause}" if self.cause else f"{line}: as predicted"


def trial_result(run: Path, steps: str) -> TrialResult:
    """Compare the steps that `trial.py` wrote with the advice in a run's folder. Raises: SpecError."""
    try:
        advice = json.loads((run / JSON).read_text(encoding="utf-8"), parse_constant=int)  # NaN and Infinity are none
        advised, compute_s = advice["advised"], float(advice["workload"]["step_time_s"])
        predicted_s, setting = float(advised["step_time_s"]), f"{advised['algorithm']} on {advised['collective']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SpecError(f"{run / JSON}: no advice to compare with ({error}); `wanbench advise` writes it") from None
    times_s = _read(steps)
    measured_s = fmean(times_s)
    return TrialResult(setting, predicted_s, measured_s, len(times_s), cause(times_s, predicted_s, compute_s))


def cause(times_s: Sequence[float], predicted_s: float, compute_s: float) -> str:
    """The likely cause of a difference of over 10 %, from how the times of steps are distributed; "" if there is none.

    Args:
        times_s: of each step on rank 0. compute_s: what a step computes.
    """
    measured_s = fmean(times_s)
    excess_s = measured_s - predicted_s
    if abs(excess_s) <= BAND * predicted_s:
        return ""
    if excess_s < 0:
        return "the network is faster than the profile says; measure it with `wanbench measure`"
    shortest_s = quantiles(times_s, n=10)[0]
    some_wait_less = shortest_s < (1 - _RARE) * measured_s  # so that the shortest ones do not wait for the network
    if some_wait_less and shortest_s - compute_s > excess_s / 2:
        return f"the processor: the shortest steps take {1e3 * shortest_s:.4g} ms, and compute {1e3 * compute_s:.4g} ms"
    rare = sorted(times_s)[-max(1, int(_RARE * len(times_s))) :]
    usual_s = fmean(sorted(times_s)[: len(times_s) - len(rare)])
    if usual_s <= (1 + BAND) * predicted_s:
        return f"rare long steps, the longest {max(rare):.3g} s: lost packets, or other load on hosts or links"
    return "the network is slower than the profile says, or shared; measure it with `wanbench measure`"


def _read(path: str) -> list[float]:
    try:
        lines = read_text(Path(path), "JSON lines", _MOST_BYTES).splitlines()
    except FileError as error:
        raise SpecError(f"{path}: {error}") from None
    try:
        times_s = [float(json.loads(line)["seconds"]) for line in lines if line.strip()]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise SpecError(f'{path}: expected lines such as {{"step": 0, "seconds": 0.5}}, as trial.py writes') from None
    if len(times_s) < _FEWEST or not all(0 < seconds < 1e6 for seconds in times_s):
        raise SpecError(f"{path}: expected at least {_FEWEST} steps, each with seconds above zero; got {len(times_s)}")
    return times_s
