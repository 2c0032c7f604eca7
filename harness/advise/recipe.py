"""How to train with a setting: learning rates, warm-up and schedule, as far as somebody measured them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wanbench.harness.advise.evidence import Source, Tier
from wanbench.harness.advise.ranking import Measured


@dataclass(frozen=True)
class Recipe:
    """How a setting was trained.

    Attributes:
        params: of the algorithm, with the outer learning rate that was tuned.
        lr: tuned with the model itself; None if it was not measured on it.
        of_ssgd: the smallest and the largest learning rate in the recordings, as multiples of the best one of `ssgd`
            there; both 1 with the mathematics of `ssgd`.
        train: optimizer, batch, schedule, warm-up and steps, as recorded; empty if nothing was.
        recorded_on: the workloads of the recordings.
        proxy: whether those are other models.
    """

    params: Mapping[str, Any]
    lr: float | None
    of_ssgd: tuple[float, float] = (1.0, 1.0)
    train: Mapping[str, Any] = field(default_factory=dict)
    recorded_on: tuple[str, ...] = ()
    proxy: bool = True

    @property
    def steps(self) -> int | None:
        """The number of steps that were recorded; None if it is not given so."""
        number, _, unit = str(self.train.get("until", "")).partition(" ")
        return int(number) if unit == "steps" else None

    @property
    def words(self) -> str:
        """Learning rate, warm-up and schedule in words, and where they are from."""
        where = ", ".join(self.recorded_on)
        if not self.train:
            return "with the learning rate, warm-up and schedule of DDP on as many workers: nothing changes"
        schedule = f"{self.train.get('schedule', 'constant')} schedule"
        if warmup := self.train.get("warmup_steps"):
            schedule += f" after a warm-up of {warmup} of {self.steps or 'all'} steps"
        outer = f", outer learning rate {self.params['outer_lr']:g}" if "outer_lr" in self.params else ""
        if self.lr is not None:
            return f"with learning rate {self.lr:g}{outer}, {schedule}, as measured on this model ({where})"
        least, most = self.of_ssgd
        times = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        return (
            f"with {times} times the learning rate that is best for ssgd{outer}, {schedule}, as was best on {where}; "
            "what is best for your model is unknown, so try half and twice that rate"
        )


def recipe(measured: Measured, learned: Sequence[Source]) -> Recipe:
    """How to train with a measured setting.

    Args:
        learned: what was measured with the model itself; each has the learning rate of `ssgd` too.
    """
    params, evidence = measured.candidate.cell.params, measured.candidate.evidence
    if evidence.tier is Tier.NO_RISK:
        if not learned:
            return Recipe(params, None)
        lr, train, recorded_on = learned[0].reference_lr, learned[0].train, (learned[0].workload,)
        return Recipe(params, lr, train=train, recorded_on=recorded_on, proxy=False)
    worst = min(evidence.sources, key=lambda source: source.difference.mean)
    times = [source.lr / source.reference_lr for source in evidence.sources]
    return Recipe(
        {**params, **({} if worst.outer_lr is None else {"outer_lr": worst.outer_lr})},
        None if worst.proxy else worst.lr,
        (min(times), max(times)),
        worst.train,
        tuple(dict.fromkeys(source.workload for source in evidence.sources)),
        worst.proxy,
    )
