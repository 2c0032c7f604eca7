"""Measured candidates in order: the fastest to equal accuracy, of equals the least stale, then the fewest bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wanbench.harness.advise.evidence import Tier
from wanbench.harness.advise.shortlist import Candidate

TIE = 0.01


@dataclass(frozen=True)
class Measured:
    """A candidate with its measured step time.

    Attributes:
        step_time_s: simulated, emulated, or by the law on another network.
        bytes_per_step: what a worker gave to collectives and peers in a step, as simulated; None if it was not.
    """

    candidate: Candidate
    step_time_s: float
    bytes_per_step: float | None = None

    @property
    def to_target_s(self) -> float:
        """Seconds to the target, in units of the steps of `ssgd`; of one without evidence, seconds of a step."""
        return self.step_time_s * (self.candidate.evidence.more_steps or 1.0)

    @property
    def name(self) -> str:
        """The setting and its collective."""
        cell = self.candidate.cell
        return f"{cell.label} on {cell.collective}" if cell.algorithm().promises.lawful else cell.label

    @property
    def staleness(self) -> int:
        """Steps from a gradient to the use of its average, at most."""
        algorithm = self.candidate.cell.algorithm()
        return algorithm.delay_steps + algorithm.period_steps - 1

    @property
    def vector_bytes_per_step(self) -> float:
        """Bytes of its messages in a step: what it sends is about in proportion."""
        cell = self.candidate.cell
        return cell.messages_per_sync * cell.message_bytes / cell.algorithm().period_steps


def ranked(measured: Iterable[Measured]) -> list[Measured]:
    """In order of time to the target; those within 1 % of the first of a group are equals."""
    left = sorted(measured, key=lambda each: each.to_target_s)
    found: list[Measured] = []
    while left:
        equals = [each for each in left if each.to_target_s <= left[0].to_target_s * (1 + TIE)]
        equals.sort(key=lambda each: (each.staleness, each.vector_bytes_per_step, each.name))
        found.append(equals[0])
        left.remove(equals[0])
    return found


def one_of_each(measured: Iterable[Measured]) -> list[Measured]:
    """The first of each setting: with its best collective."""
    found: dict[str, Measured] = {}
    for each in measured:
        found.setdefault(each.candidate.cell.label, each)
    return list(found.values())


def advisable(measured: Iterable[Measured]) -> list[Measured]:
    """Those whose accuracy is known and enough, in order."""
    return ranked(each for each in measured if each.candidate.eligible)


def without_risk(measured: Iterable[Measured]) -> list[Measured]:
    """Those with the mathematics of `ssgd`, in order."""
    return ranked(each for each in measured if each.candidate.evidence.tier is Tier.NO_RISK)
