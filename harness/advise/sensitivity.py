"""Which other networks and step times have another answer: by the law, corrected by what was simulated here.

Also the answer if the paths of a site share one link, whose rate the profile does not have (`Uplinks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

from wanbench.harness.advise.question import Question
from wanbench.harness.advise.ranking import TIE, Measured, law_s, ranked
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.network import CellNetwork
from wanbench.netprofiles import Delay, Profile, Rate

_FACTORS = ((1.25, 1.5, 2.0), (0.75, 0.5))  # of each direction, the smallest change first
_AXES = ("RTT", "rate", "step time")


@dataclass(frozen=True)
class Shift:
    """A change of the network or of the machines that makes another setting the best.

    Attributes:
        axis: "RTT", "rate" or "step time". factor: on it. name: the best setting there.
        gain: how much less time than the advised setting it takes there.
    """

    axis: str
    factor: float
    name: str
    gain: float


def sensitivity(question: Question, advised: Measured, measured: Sequence[Measured]) -> list[Shift] | None:
    """For each axis and direction, the smallest change that makes another setting better by over `TIE`.

    Algorithms that the law does not describe are left out; None if the advised one is one of them.
    """
    if advised.candidate.law_s is None:
        return None
    with_law = [result for result in measured if result.candidate.law_s]
    smallest = []
    for axis, factors in product(_AXES, _FACTORS):
        changes = (_shift(question, axis, factor, advised, with_law) for factor in factors)
        smallest += [*islice(filter(None, changes), 1)]
    return smallest


def _shift(
    question: Question, axis: str, factor: float, advised: Measured, measured: Sequence[Measured]
) -> Shift | None:
    there = question.changed(_changes(question, axis, factor))
    best = ranked(moved(result, there.reference) for result in measured)[0]
    advised_there = moved(advised, there.reference)
    gain = 1 - best.to_target_s / advised_there.to_target_s
    if best.name == advised.name or gain < TIE:
        return None
    return Shift(axis, factor, best.name, gain)


def moved(measured: Measured, there: TrainingCell) -> Measured:
    """A measured candidate with another cell's network and machines: its law there, corrected by how far it was off."""
    candidate = measured.candidate
    assert candidate.law_s is not None
    cell = replace(candidate.cell, network=there.network, task=there.task, step_times=there.step_times)
    new_s = law_s(cell)
    assert new_s is not None
    return Measured(replace(candidate, cell=cell, law_s=new_s), new_s * measured.step_time_s / candidate.law_s)


def _changes(question: Question, axis: str, factor: float) -> Mapping[str, Any]:
    table, uniform = question.spec.network, question.reference.network.is_uniform
    if axis == "step time":
        times_ms = [1e3 * time_s * factor for time_s in question.reference.each_step_time_s]
        return {"workload.step_time": [str(Delay.from_ms(time_ms)) for time_ms in times_ms]}
    if axis == "RTT":
        if uniform:
            assert table.rtt is not None
            return {"network.rtt": str(Delay.from_ms(table.rtt.ms * factor))}
        return {"network.rtt_scale": (table.rtt_scale or 1.0) * factor}
    if uniform:
        assert table.rate is not None
        return {"network.rate": str(Rate.from_mbit(table.rate.mbit * factor))}
    return {"network.rate_scale": (table.rate_scale or 1.0) * factor}


@dataclass(frozen=True)
class Uplinks:
    """Sites whose uplink is not in the profile.

    Attributes:
        sites: their names. best: the best setting by the law, if the uplink of each is as fast as its fastest path;
            None if no setting can be judged by the law. step_time_s: of it.
    """

    sites: tuple[str, ...]
    best: str | None = None
    step_time_s: float | None = None


def missing(question: Question) -> dict[str, Rate]:
    """The rate of the fastest path of each site that sends over several paths and has no uplink."""
    profile, sites = question.reference.profile, dict.fromkeys(question.reference.placement)
    rates_by_site: dict[str, Rate] = {}
    for site in sites:
        paths = [profile.path(site, other) for other in sites if other != site]
        rates = [path.rate for path in paths if path.rate is not None]
        if profile.site(site).up is None and len(rates) > 1:
            rates_by_site[site] = max(rates)
    return rates_by_site


def shared(question: Question, measured: Sequence[Measured]) -> Uplinks | None:
    """The answer if the paths of a site share one link; None if every uplink is known.

    Args:
        measured: the candidates that can be advised, as simulated.
    """
    rates = missing(question)
    if not rates:
        return None
    reference = question.reference
    fields = {name: getattr(reference.network, name) for name in ("table", "source", "digest")}
    network = _WithUplinks(**fields, uplinks=rates)
    there = [moved(result, replace(reference, network=network)) for result in measured if result.candidate.law_s]
    if not there:
        return Uplinks(tuple(rates))
    best = ranked(there)[0]
    return Uplinks(tuple(rates), best.name, best.step_time_s)


@dataclass(frozen=True)
class _WithUplinks(CellNetwork):
    """A network whose sites have other uplinks and downlinks."""

    uplinks: Mapping[str, Rate] = field(default_factory=dict)

    def profile(self, workers: int, scale: float) -> Profile:
        profile = super().profile(workers, 1.0)
        sites = tuple(
            replace(site, up=self.uplinks.get(site.name, site.up), down=self.uplinks.get(site.name, site.down))
            for site in profile.sites
        )
        changed = replace(profile, sites=sites)
        return changed if scale == 1.0 else changed.scaled(scale)
