"""Sites whose paths have rates and whose uplink has none: the answer if their paths share one link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from wanbench.harness.advise.flips import moved
from wanbench.harness.advise.question import Question
from wanbench.harness.advise.ranking import Measured, ranked
from wanbench.harness.plan.network import CellNetwork
from wanbench.netprofiles import Profile, Rate


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
    profile, sites = question.profile, dict.fromkeys(question.reference.placement)
    found: dict[str, Rate] = {}
    for site in sites:
        rates = [profile.path(site, other).rate for other in sites if other != site]
        known = [rate for rate in rates if rate is not None]
        if profile.site(site).up is None and len(known) > 1:
            found[site] = max(known)
    return found


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
    there = [moved(each, replace(reference, network=network)) for each in measured if each.candidate.law_s]
    if not there:
        return Uplinks(tuple(rates))
    best = ranked(there)[0]
    return Uplinks(tuple(rates), best.name, best.step_time_s)


@dataclass(frozen=True)
class _WithUplinks(CellNetwork):
    """A network whose sites have other uplinks and downlinks."""

    uplinks: Mapping[str, Rate] = field(default_factory=dict)

    def profile(self, workers: int, scale: float) -> Profile:
        """See `CellNetwork.profile`."""
        profile = super().profile(workers, 1.0)
        sites = tuple(
            replace(site, up=self.uplinks.get(site.name, site.up), down=self.uplinks.get(site.name, site.down))
            for site in profile.sites
        )
        changed = replace(profile, sites=sites)
        return changed if scale == 1.0 else changed.scaled(scale)
