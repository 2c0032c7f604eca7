"""What is known of the accuracy of a setting: the same mathematics as `ssgd`, recorded trajectories, or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from wanbench.harness.advise.candidates import Setting, identity
from wanbench.harness.advise.question import REFERENCE, Limits, Question
from wanbench.harness.analysis.paired import MeanInterval, mean_interval, quantile
from wanbench.harness.errors import SpecError
from wanbench.harness.learning.campaign import data_hash
from wanbench.harness.learning.design import BASE
from wanbench.harness.learning.recording import SUFFIX, Recording, Trajectory, read, recorded
from wanbench.harness.learning.summary import difference
from wanbench.harness.plan import registry
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.rep import sources
from wanbench.harness.results.target import steps_to_target
from wanbench.netprofiles import did_you_mean
from wanbench.workloads.algorithms.base import AlgorithmError

FEWEST_SEEDS = 3
_MOST_SEEDS = 100
_LEAST_GAIN = 3  # allowed drops


class Tier(StrEnum):
    """How well the accuracy of a setting is known."""

    NO_RISK = "no risk"
    EVIDENCE = "evidence"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Source:
    """What a recording says of a setting.

    Attributes:
        design, condition, setting: where it is in the recording.
        workload, workers, seeds, optimizer: what was trained.
        proxy: whether that is another model than the one asked about.
        lr, outer_lr: learning rates as tuned. reference_lr: that of `ssgd`. train: all else of how it was trained.
        difference: accuracy after the last step minus that of `ssgd`, paired by seed.
        more_steps: steps to the target as a multiple of those of `ssgd`; None if the mean over the seeds never gets
            there. low, high: its 95 % interval over paired seeds; None if a seed never gets there, or with fewer than
            three.
        holds: whether it keeps to the allowed drop of accuracy, or reaches the target loss. None if these seeds do not
            decide that, because the interval of the difference contains the allowed drop.
        deciding_seeds: how many would decide it if mean and variance stay the same; None if it is decided, or if it
            takes over a hundred.
    """

    design: str
    condition: str
    setting: str
    workload: str
    workers: int
    seeds: int
    optimizer: str
    proxy: bool
    lr: float
    outer_lr: float | None
    reference_lr: float
    train: Mapping[str, Any]
    difference: MeanInterval
    more_steps: float | None
    low: float | None
    high: float | None
    holds: bool | None
    deciding_seeds: int | None


@dataclass(frozen=True)
class Evidence:
    """The tier of a setting, and its sources."""

    tier: Tier
    sources: tuple[Source, ...] = ()

    @property
    def undecided(self) -> str:
        """What longer recordings would decide, as a text in brackets; "" if nothing is undecided."""
        some = [source for source in self.sources if source.holds is None]
        seeds = [f"{source.design} has {source.seeds} seeds, {source.deciding_seeds or 'over 100'}" for source in some]
        return f" ({'; '.join(seeds)} would decide it)" if some and self.tier is Tier.UNKNOWN else ""

    @property
    def more_steps(self) -> float | None:
        """Steps to the target as a multiple of those of `ssgd`, in the least favourable source; None if not advised."""
        if self.tier is not Tier.EVIDENCE or not all(source.holds for source in self.sources):
            return 1.0 if self.tier is Tier.NO_RISK else None
        return max((source.more_steps for source in self.sources if source.more_steps is not None), default=None)

    @property
    def spread(self) -> float:
        """The upper end of the 95 % interval of `more_steps` over its mean, in the widest source; at least 1."""
        known = [source for source in self.sources if source.more_steps is not None and source.high is not None]
        return max([1.0, *((source.high or 1.0) / (source.more_steps or 1.0) for source in known)])


@dataclass(frozen=True)
class Library:
    """The recordings that are evidence for a workload.

    Attributes:
        recordings: of the workload itself, else of the proxies. proxy: whether they are of another model.
        network: what training that depends on time must have been recorded on.
        trained_otherwise: recordings of this model that do not count, each with what differs.
    """

    recordings: tuple[Recording, ...]
    proxy: bool
    limits: Limits
    network: str = ""
    trained_otherwise: tuple[str, ...] = ()

    @classmethod
    def for_question(cls, question: Question, named: Sequence[str], runs: Path) -> Library:
        """Choose the recordings.

        A recording of the workload itself comes first, in `runs` or in the package, if code, data, optimizer, batch and
        number of workers are those that are asked about. Otherwise the proxies are those that are named, or all that
        ship with the package.

        Args:
            named: designs. runs: the folder of `wanbench learn`.

        Raises:
            SpecError: a named design is not recorded.
        """
        shipped = {recording.design: recording for recording in recorded()}
        own = map(read, sorted(runs.glob(f"learn-*/learned{SUFFIX}")))
        every = shipped | {recording.design: recording for recording in own}
        for name in named:
            if name not in every:
                near = did_you_mean(name, every, f"recorded: {', '.join(every)}")
                raise SpecError(f"--proxy {name}: no such recording{near}")
        trained = {
            recording.design: differences(recording, question)
            for recording in every.values()
            if _is_of(recording, question)
        }
        itself = [every[design] for design, differing in trained.items() if not differing]
        trained_otherwise = tuple(
            f"{design}: {', '.join(differing)}" for design, differing in trained.items() if differing
        )
        proxy = bool(named) or not itself
        recordings = ([every[name] for name in named] or shipped.values()) if proxy else itself
        return cls(tuple(recordings), proxy, question.limits, question.network_name, trained_otherwise)

    def _settings(self) -> Iterator[tuple[Recording, str, str, Setting]]:
        """(recording, condition, name, setting) of all that is recorded, without algorithms of users that are not here.

        Settings are labelled by their parameters: a design can call any of them `olco3-s1-p4-topk`.
        """
        for recording in self.recordings:
            for (condition, name), seeds in recording.by_setting.items():
                first = next(iter(seeds.values()))
                with suppress(AlgorithmError):
                    label = registry.algorithm(first.kind, first.params).label
                    yield recording, condition, name, Setting(label, first.kind, first.params)

    @property
    def settings(self) -> list[Setting]:
        """All recorded settings, one of each label."""
        labelled: dict[str, Setting] = {}
        for *_, setting in self._settings():
            labelled.setdefault(setting.label, setting)
        return list(labelled.values())

    @cached_property
    def _by_identity(self) -> Mapping[str, list[tuple[Recording, str, str]]]:
        """(recording, condition, name) of each recorded setting by its identity."""
        by_identity: dict[str, list[tuple[Recording, str, str]]] = {}
        for recording, condition, name, setting in self._settings():
            by_identity.setdefault(setting.identity, []).append((recording, condition, name))
        return by_identity

    def evidence(self, cell: TrainingCell) -> Evidence:
        """What is known of a cell's setting."""
        algorithm = cell.algorithm()
        synchronous = algorithm.promises.exact and (algorithm.delay_steps, algorithm.period_steps) == (0, 1)
        if synchronous and algorithm.compressor is None:
            return Evidence(Tier.NO_RISK)
        timed = not algorithm.promises.repeats
        sources = tuple(self._sources(identity(cell.kind, cell.params), cell.train.optimizer, timed=timed))
        # Recordings of one model with other optimisers complete each other.
        agreed = {source.workload for source in sources} == {_workload(source) for source in self.recordings}
        kept = bool(sources) and all(source.holds for source in sources) and (agreed or not self.proxy)
        decided = kept or any(source.holds is False for source in sources)  # one model that it fails is enough
        return Evidence(Tier.EVIDENCE if decided else Tier.UNKNOWN, sources)

    def _sources(self, key: str, optimizer: str, *, timed: bool) -> Iterator[Source]:
        """The recorded trajectories of a setting; of one whose training depends on time, only from this network."""
        for recording, condition, name in self._by_identity.get(key, ()):
            required = self.network if timed else BASE if _optimizer(recording, BASE) == optimizer else optimizer
            if condition == required or (
                not timed and condition == BASE and (required, name) not in recording.by_setting
            ):
                of_setting = source(recording, condition, name, self.limits, proxy=self.proxy)
                if of_setting is not None:
                    yield of_setting

    def measured(self) -> list[Source]:
        """What was measured with the model itself, of every setting but `ssgd`; with few seeds too."""
        own = [] if self.proxy else [(recording, *key) for recording in self.recordings for key in recording.by_setting]
        of_settings = (
            source(recording, condition, name, self.limits, proxy=False)
            for recording, condition, name in own
            if name != REFERENCE
        )
        return [of_setting for of_setting in of_settings if of_setting is not None]

    @property
    def without_learning(self) -> list[str]:
        """The recordings in which `ssgd` hardly learned, so that they show nothing of the others, each with why."""
        gains = ((recording.design, gained(recording.reference_of(BASE) or {})) for recording in self.recordings)
        low = [(design, gain) for design, gain in gains if gain is not None and not _enough(gain, self.limits)]
        return [f"{design}: ssgd gained {100 * gain:.1f} points of accuracy" for design, gain in low]


def source(recording: Recording, condition: str, name: str, limits: Limits, *, proxy: bool) -> Source | None:
    """What a recording says of a setting; None without a reference that learned under the same condition."""
    seeds, reference = recording.by_setting[condition, name], recording.reference_of(condition)
    if reference is None or not _enough(gained(reference), limits):
        return None
    against = difference(seeds, reference)
    if against is None:
        return None
    ratio, low, high = more_steps(seeds, reference, limits)
    first = next(iter(seeds.values()))
    drop = limits.accuracy_drop
    holds: bool | None = against.low >= -drop
    if limits.target_loss is not None:
        holds = ratio is not None and (high is not None or None)  # open if not each of three seeds gets there
    elif against.low < -drop <= against.high:
        holds = None
    return Source(
        design=recording.design,
        condition=condition,
        setting=name,
        workload=_workload(recording),
        workers=first.workers,
        seeds=len(seeds),
        optimizer=_optimizer(recording, condition),
        proxy=proxy,
        lr=first.lr,
        outer_lr=first.outer_lr,
        reference_lr=next(iter(reference.values())).lr,
        train=_trained(recording, condition),
        difference=against,
        more_steps=ratio,
        low=low,
        high=high,
        holds=holds,
        deciding_seeds=_deciding_seeds(against, drop) if holds is None else None,
    )


def _deciding_seeds(against: MeanInterval, drop: float) -> int | None:
    """The least number of seeds whose interval would not contain the allowed drop, with equal mean and variance."""
    if against.count < FEWEST_SEEDS:
        return FEWEST_SEEDS
    deviation = (against.high - against.mean) * math.sqrt(against.count) / quantile(against.count - 1)
    more = range(against.count + 1, _MOST_SEEDS + 1)
    return next((n for n in more if deviation * quantile(n - 1) < abs(against.mean + drop) * math.sqrt(n)), None)


Seeds = Mapping[int, Trajectory]


def gained(reference: Seeds) -> float | None:
    """How much accuracy the reference gained from the first evaluation to the last; None if it was not evaluated."""
    _, values = _mean_curve([*reference.values()], falling=False) if reference else ([], [])
    first, last = (values[0], values[-1]) if values else (None, None)
    return None if first is None or last is None else last - first


def _enough(gain: float | None, limits: Limits) -> bool:
    """Whether a reference learned so much that the allowed drop is a small part of it."""
    return gain is None or limits.target_loss is not None or gain > _LEAST_GAIN * limits.accuracy_drop


def more_steps(seeds: Seeds, reference: Seeds, limits: Limits) -> tuple[float | None, float | None, float | None]:
    """Steps to the target as a multiple of those of the reference, with the 95 % interval over paired seeds.

    The target is the reference's mean accuracy after its last step, less the allowed drop; or a loss.
    """
    both = sorted(seeds.keys() & reference.keys())
    ratio = _ratio([seeds[seed] for seed in both], [reference[seed] for seed in both], limits)
    ratios = [_ratio([seeds[seed]], [reference[seed]], limits) for seed in both]
    logs = [math.log(value) for value in ratios if value]
    if ratio is None or len(logs) < len(ratios) or len(ratios) < 3:
        return ratio, None, None
    interval = mean_interval(logs)
    return ratio, math.exp(interval.low), math.exp(interval.high)


def _ratio(seeds: Sequence[Trajectory], reference: Sequence[Trajectory], limits: Limits) -> float | None:
    falling = limits.target_loss is not None
    steps, values = _mean_curve(reference, falling=falling)
    final = limits.target_loss if falling else values[-1]
    if final is None:
        return None
    target = final if falling else final - limits.accuracy_drop
    reference_steps = steps_to_target(steps, values, target, falling=falling)
    own = steps_to_target(*_mean_curve(seeds, falling=falling), target, falling=falling)
    return None if own is None or not reference_steps else own / reference_steps


def _mean_curve(seeds: Sequence[Trajectory], *, falling: bool) -> tuple[list[float], list[float | None]]:
    """The mean over seeds: of accuracies at the evaluations, or of losses in the middle of what they are means of."""
    first = seeds[0]
    if falling:
        steps = [(index + 0.5) * first.loss_every for index in range(len(first.loss))]
        return steps, _means([trajectory.loss for trajectory in seeds])
    return [float(step) for step in first.steps], _means([trajectory.accuracy for trajectory in seeds])


def _means(curves: Iterable[Sequence[float | None]]) -> list[float | None]:
    return [
        None if any(value is None for value in values) else sum(map(float, values)) / len(values)
        for values in zip(*curves, strict=False)
    ]


def _optimizer(recording: Recording, condition: str) -> str:
    return str(_trained(recording, condition).get("optimizer", "sgd"))


def _trained(recording: Recording, condition: str) -> dict[str, Any]:
    """The table `[train]` of a condition."""
    table: Mapping[str, Any] = next((c for c in recording.about.get("conditions", ()) if c["name"] == condition), {})
    train = {**recording.about["train"], **table.get("train", {})}
    return {key: value for key, value in train.items() if key not in table.get("without", ())}


def _workload(recording: Recording) -> str:
    return str(recording.about["workload"].get("name") or recording.about["workload"].get("model"))


def _is_of(recording: Recording, question: Question) -> bool:
    trained, asked = recording.about["workload"], question.spec.workload
    return any(getattr(asked, key) is not None and trained.get(key) == getattr(asked, key) for key in ("name", "model"))


def differences(recording: Recording, question: Question) -> list[str]:
    """What a recording of this model trained otherwise than it is asked about, in words."""
    cell, train = question.reference, recording.about["train"]
    asked = {key: getattr(cell.train, key) for key in ("optimizer", "batch_size")}
    if cell.train.optimizer == "sgd":
        asked |= {"momentum": cell.train.momentum, "nesterov": cell.train.nesterov}
    default = type(cell.train).model_fields
    pairs = {key: (train.get(key, default[key].default), value) for key, value in asked.items()}
    pairs["workers"] = recording.about["workers"], question.workers
    changes = [f"{key} {recorded}, here {value}" for key, (recorded, value) in pairs.items() if recorded != value]
    if (changed := sources.changed(cell.inputs, recording.made.get("sources", {}))) is not None:
        changes.append(f"{changed} has changed")
    elif "sources" not in recording.made and question.spec.workload.model is not None:
        changes.append("its code was not recorded")
    if question.spec.workload.model is not None and recording.made.get("data") != data_hash(cell):
        changes.append("other data")
    return changes
