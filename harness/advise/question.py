"""What is asked: a network, a workload, and what the answer may cost."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.advise.site import site_of, values, whole
from wanbench.harness.errors import SpecError
from wanbench.harness.learning.cost import measured
from wanbench.harness.learning.recording import recorded
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.plan.law import predict
from wanbench.harness.plan.network import with_profile
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import FileError
from wanbench.netprofiles.user_file import parse_toml, read_text

REFERENCE = "ssgd"
_WINDOW, _SHORT_WINDOW = "60 steps", "20 steps"
_LONG = 10  # computing times; in longer steps stragglers hardly count
_NUMBERS: Mapping[str, Callable[[str], Any]] = {"params": whole, "tensors": whole, "step_time": str, "step_cv": float}
_MEASURING_S = 1.5  # so that the answer does not depend on what else the host does
_TRAINED = frozenset({"optimizer", "momentum", "nesterov", "batch_size"})
_MOMENTUM = 0.9  # decides how many vectors some algorithms send


@dataclass(frozen=True)
class Limits:
    """What the answer may cost.

    Attributes:
        accuracy_drop: largest loss of accuracy against `ssgd`, as a share.
        target_loss: a training loss to reach instead, in the model that was measured; None is unused.
        memory_bytes: of one worker, for parameters and messages; None is any.
        excluded: kinds of algorithms that are not considered.
    """

    accuracy_drop: float = 0.01
    target_loss: float | None = None
    memory_bytes: float | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Question:
    """A network and a workload, as a spec with one algorithm, and the limits.

    Attributes:
        where: what errors call it.
        one_worker, reference: the cells of one worker, and of `ssgd`, which all candidates are made from.
        step_time_measured: whether the step time is that of this host, because the workload has none.
    """

    spec: Spec
    where: str
    limits: Limits
    one_worker: TrainingCell
    reference: TrainingCell
    step_time_measured: bool = False

    @property
    def workers(self) -> int:
        """The number of workers, N."""
        return self.reference.workers

    @property
    def network_name(self) -> str:
        """What people call the network."""
        network = self.reference.network
        if not network.is_uniform:
            return network.name
        return " ".join(str(part) for part in ("uniform", network.table.rtt, network.table.rate) if part)

    @property
    def slow(self) -> bool:
        """Whether by the law a step of `ssgd` is so long that simulations of it take long."""
        law = self.reference.law_inputs
        return predict(law).step_time_s > _LONG * law.step_time_s

    def changed(self, changes: Mapping[str, Any]) -> Question:
        """The same question about another network or workload, by dotted keys of the spec. Raises: SpecError."""
        spec = self.spec.override(changes, self.where)
        one_worker, reference = _cells(spec, self.where)
        return replace(self, spec=spec, one_worker=one_worker, reference=reference)


def ask(
    network: Mapping[str, Any],
    workload: str,
    workers: int | None,
    limits: Limits,
    where: str = "advise",
) -> Question:
    """Make a question.

    Args:
        network: keys of `[network]`. workload: as `workload_tables` reads it.
        workers: N; None is one worker on each site, or four on a uniform network.

    Raises:
        SpecError: the network, the workload or their combination is wrong.
    """
    task, train = workload_tables(workload)
    task.pop("payload_scale", None)
    data: dict[str, Any] = {
        "schema": 1,
        "name": _name(network, task),
        "workload": task,
        "network": {"tcp": {"congestion": "cubic"}, **network},
        "algorithms": {REFERENCE: {}},
        "train": train,
        "sweep": {"workers": [2 if workers is None else workers]},
        "run": {"testbed": "virtual", "repeats": 1, "window": _WINDOW},
    }
    spec = Spec.from_dict(data, where)
    measured_here = "model" in task and "step_time" not in task
    if measured_here:
        step_s = _step_time_s(spec, where)
        spec = spec.override({"workload.step_time": f"{1e3 * step_s:.3f}ms"}, where)
    if workers is None:
        spec = spec.override({"sweep.workers": [_sites(spec, where)]}, where)
    one_worker, reference = _cells(spec, where)
    _check_rates(reference)
    question = Question(spec, where, limits, one_worker, reference, measured_here)
    return question.changed({"run.window": _SHORT_WINDOW}) if question.slow else question


def workload_tables(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `[workload]` and `[train]` tables that a word stands for.

    Args:
        text: a built-in name, of a site with its GPUs, such as "gpt-1b,gpus=16"; numbers, such as
            "params=7e9,tensors=291,step_time=800ms"; "pkg:make"; or a TOML file with a `[workload]` table, as
            `wanbench exec --describe` prints it, or a whole spec.

    Raises:
        SpecError: it is none of these.
    """
    if text.endswith(".toml") or "/" in text:
        return _from_file(text)
    if (site := site_of(text)) is not None:
        return site.table, {"momentum": _MOMENTUM}
    if "=" in text:
        return values(text, text.split(","), _NUMBERS, "params=7e9,step_time=800ms"), {"momentum": _MOMENTUM}
    if ":" in text:
        return {"model": text}, {"momentum": _MOMENTUM}
    return {"name": text}, _recorded_train(text) or {"momentum": _MOMENTUM}


def _recorded_train(name: str) -> dict[str, Any]:
    """The optimizer and the batch with which most settings of a built-in workload were recorded; empty if none was."""
    recordings = [recording for recording in recorded() if recording.about["workload"].get("name") == name]
    most = max(recordings, key=lambda recording: len(recording.by_setting), default=None)
    return {key: value for key, value in most.about["train"].items() if key in _TRAINED} if most else {}


def _from_file(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        data = parse_toml(read_text(Path(path), "TOML"))
    except FileError as error:
        raise SpecError(f"--workload {path}: {error}") from None
    task = data.get("workload")
    if not isinstance(task, dict):
        raise SpecError(
            f"--workload {path}: no [workload] table; expected a spec, or what `wanbench exec --describe` printed"
        )
    if "command" in task:
        raise SpecError(
            f"--workload {path}: the compute of a program is not known; `wanbench exec --describe` describes it by "
            "numbers"
        )
    train = {key: value for key, value in data.get("train", {}).items() if key in _TRAINED}
    return dict(task), train or {"momentum": _MOMENTUM}


def _name(network: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    where = Path(str(network["profile"])).stem
    if where == "uniform":
        where = "-".join(str(network[key]) for key in ("rtt", "rate") if key in network) or where
    what = task.get("name") or task.get("model", "").replace(":", "-") or f"{task.get('params', '')}"
    preset = network.get("tcp", {}).get("preset", "tuned")
    text = f"advise-{where}-{what}{'' if preset == 'tuned' else f'-{preset}'}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80]
    # Two networks whose names are written alike have folders of their own.
    return name if name == text else f"{name[:71]}-{zlib.crc32(text.encode()):08x}"


def _sites(spec: Spec, where: str) -> int:
    """One worker for each site; as many as `place` says; or four, if sites are as many as workers."""
    if isinstance(spec.network.place, dict):
        return sum(spec.network.place.values())
    network = with_profile(spec.network, where)
    return 4 if network.is_uniform else max(2, len(network.profile(2, 1.0).sites))


def _cells(spec: Spec, where: str) -> tuple[TrainingCell, TrainingCell]:
    one_worker, reference = expand(spec, where, FixedHost())
    assert isinstance(one_worker, TrainingCell)
    assert isinstance(reference, TrainingCell)
    return one_worker, reference


def _check_rates(cell: TrainingCell) -> None:
    """Refuse a network on which bytes take no time. Raises: SpecError."""
    if cell.law_inputs.rate_bytes_per_s is None:
        what = "--rate, such as --rate 1Gbit" if cell.network.is_uniform else "rates, as `wanbench measure` does"
        raise SpecError(f"advise: {cell.network.name}: no rate is known, so every setting would be as fast; add {what}")


def _step_time_s(spec: Spec, where: str) -> float:
    """Seconds of a step of a user's model on this host."""
    cells = expand(spec.override({"run.testbed": "netns"}, where), where, FixedHost())
    return measured(next(cell for cell in cells if isinstance(cell, TrainingCell)), _MEASURING_S).gradient_s
