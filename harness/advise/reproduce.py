"""An answer as things to use: a spec that measures it, a snippet that trains with it, and a trial on real hosts.

`trial_result` is what a trial measured, beside what `advise` predicted, and the likely cause of a difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from wanbench.harness.advise.question import Question
from wanbench.harness.errors import SpecError
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.pacing import network_environments
from wanbench.netprofiles import FileError
from wanbench.netprofiles.toml_text import document
from wanbench.netprofiles.user_file import read_text
from wanbench.workloads.group.settings import COLLECTIVE

_WINDOW = "20 steps"  # DDP on gloo can take many seconds a step
_TRIAL_S = 300
_KEYS = ("workload", "network", "train")
BAND = 0.1  # simulated and emulated times agree so well in most cells
ADVICE = "advice.json"
_FEWEST = 20
_RARE = 0.1  # share of the steps that are rare
_MOST_BYTES = 64 << 20


def emulation_spec(question: Question, cells: Sequence[TrainingCell], repeats: int) -> str:
    """A spec in TOML that emulates cells, each with its collective."""
    data = question.spec.to_dict()
    keys = _keys(cells)
    spec: dict[str, Any] = {
        "schema": 1,
        "name": f"{question.spec.name[:71]}-emulated",
        "description": "The settings that `wanbench advise` compared.",
        **{key: dict(data[key]) for key in _KEYS if data.get(key)},
        "algorithms": {
            (key := keys[cell.label]): {**({} if key == cell.kind else {"kind": cell.kind}), **cell.params}
            for cell in cells
        },
        "run": {"window": _WINDOW, "repeats": repeats},
    }
    if not question.reference.workload.learns:
        spec["workload"]["payload_scale"] = "auto"
    by_collective: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_collective.setdefault(cell.collective, {})[keys[cell.label] + cell.label.removeprefix(cell.kind)] = None
    (first, labels), *rest = by_collective.items()
    spec["sweep"] = {"workers": [question.workers], "collective": [first], "algorithm": [*labels]}
    included = [
        {"workers": question.workers, "collective": collective, "algorithm": label}
        for collective, labels in rest
        for label in labels
    ]
    if included:
        spec["sweep"]["include"] = included
    return document(spec)


def _keys(cells: Sequence[TrainingCell]) -> dict[str, str]:
    """The key of each label in `[algorithms]`: the kind, and from the second of a kind on with a number."""
    keys: dict[str, str] = {}
    for cell in cells:
        if cell.label not in keys:
            same_kind = sum(key == cell.kind or key.startswith(f"{cell.kind}-") for key in keys.values())
            keys[cell.label] = cell.kind if not same_kind else f"{cell.kind}-{same_kind + 1}"
    return keys


def snippet(cell: TrainingCell) -> str:
    """A few lines that train with a setting in a user's own loop."""
    backend, lines = _backend(cell), _network_settings(cell)
    params = "".join(f", {key}={value!r}" for key, value in cell.params.items())
    return "\n".join(
        [
            *(["import os"] if lines else []),
            "import torch.distributed as dist",
            "from wanbench import wrap",
            "",
            *lines,
            f"dist.init_process_group({backend!r})",
            f"wrapped = wrap(model, optimizer, {cell.kind!r}{params})",
            "for inputs, targets in batches:",
            "    optimizer.zero_grad()",
            "    loss(model(inputs), targets).backward()",
            "    optimizer.step()",
            "wrapped.drain()",
            "",
        ]
    )


def _backend(cell: TrainingCell) -> str:
    return "gloo" if cell.collective == "gloo" else "wan"


def _network_settings(cell: TrainingCell) -> list[str]:
    """Lines that tell the process group `wan` of the network; none for gloo."""
    if _backend(cell) == "gloo":
        return []
    by_rank = [*network_environments(cell.profile, cell.placement, cell.mtu, by_site=cell.collective == "hierarchical")]
    if cell.collective == "hierarchical":
        by_rank = [{COLLECTIVE: "hierarchical", **variables} for variables in by_rank]
    alike = all(variables == by_rank[0] for variables in by_rank)
    lines = (
        [f"TOLD = {by_rank[0]!r}"] if alike else ["TOLD = [", *(f"    {variables!r}," for variables in by_rank), "]"]
    )
    own = "TOLD" if alike else 'TOLD[int(os.environ["RANK"])]'
    return [
        f"# What the process group knows of the network. Ranks are at {', '.join(map(repr, cell.placement))}.",
        *lines,
        f"os.environ |= {own}",
        "",
    ]


def trial(cell: TrainingCell, predicted_s: float) -> str:
    """A script that runs a setting under plain torchrun for five minutes, with gradients of zeros.

    Args:
        predicted_s: seconds of a step.
    """
    low, high = predicted_s * (1 - BAND), predicted_s * (1 + BAND)
    values: Mapping[str, Any] = {
        "SITES": list(cell.placement),
        "BACKEND": _backend(cell),
        "ALGORITHM": cell.kind,
        "PARAMS": dict(cell.params),
        "TENSORS": [tensor.numel for tensor in cell.workload.parameters],
        "STEP_TIMES_S": list(cell.each_step_time_s),
        "STEP_CV": cell.workload.step_cv,
        "PREDICTED_S": (round(low, 6), round(high, 6)),
        "WARM_UP": cell.window_begin + 3,
        "PERIOD": cell.algorithm().period_steps,
        "SECONDS": _TRIAL_S,
    }
    return _TRIAL.format(
        workers=cell.workers,
        constants="\n".join(f"{key} = {value!r}" for key, value in values.items()),
        told="\n".join(_network_settings(cell)),
    )


_TRIAL = '''"""A trial of five minutes on your own hosts: real messages, gradients of zeros, and emulated compute.

On each of {workers} hosts, with wanbench installed, with an address of the first host and the rank of each:

    torchrun --nnodes {workers} --nproc-per-node 1 --node-rank RANK --master-addr FIRST_HOST trial.py

Rank r is at SITES[r]. Rank 0 prints the time of a step beside the predicted one, and writes steps.jsonl for
`wanbench compare`.
"""

import json
import math
import os
import random
import time

import torch
import torch.distributed as dist

from wanbench import wrap

{constants}
SIGMA = math.sqrt(math.log1p(STEP_CV * STEP_CV))

{told}
dist.init_process_group(BACKEND)
model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(numel)) for numel in TENSORS])
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
wrapped = wrap(model, optimizer, ALGORITHM, **PARAMS)
for parameter in model:
    parameter.grad = torch.zeros_like(parameter)


def step():
    began = time.monotonic()
    time.sleep(STEP_TIMES_S[dist.get_rank()] * random.lognormvariate(-SIGMA * SIGMA / 2, SIGMA))
    optimizer.step()
    return time.monotonic() - began


for _ in range(WARM_UP):
    step()
a_period_s = torch.tensor(sum(step() for _ in range(PERIOD)))
dist.broadcast(a_period_s, src=0)  # all ranks make equally many steps
periods = max(3, int(SECONDS / a_period_s.item()))
began = time.monotonic()
times_s = [step() for _ in range(periods * PERIOD)]
mean_s = (time.monotonic() - began) / len(times_s)
wrapped.drain()
if dist.get_rank() == 0:
    with open("steps.jsonl", "w") as file:
        for number, seconds in enumerate(times_s):
            file.write(json.dumps({{"step": number, "seconds": seconds}}) + "\\n")
    low, high = PREDICTED_S
    verdict = "as predicted" if low <= mean_s <= high else "not as predicted"
    print(f"{{mean_s:.4f}} s a step; predicted {{low:.4f}} to {{high:.4f}}: {{verdict}}")
dist.destroy_process_group()
'''


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
        advice = json.loads((run / ADVICE).read_text(encoding="utf-8"), parse_constant=int)  # NaN and Infinity are none
        advised, compute_s = advice["advised"], float(advice["workload"]["step_time_s"])
        predicted_s, setting = float(advised["step_time_s"]), f"{advised['algorithm']} on {advised['collective']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SpecError(f"{run / ADVICE}: no advice to compare with ({error}); `wanbench advise` writes it") from None
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
