"""Emulated compute: how long a step takes, and when each bucket of gradients is ready during the step.

One third of a step is the forward pass, two thirds are the backward pass: for each matrix product of the forward pass,
the backward pass computes two with the gradient of the output (Kaplan et al. 2020, section 2.1). This module does not
import torch.

A straggler is a worker whose compute takes longer for a while, measured by its own clock.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from wanbench.workloads.comm.base import Clock
from wanbench.workloads.compute.buckets import Bucket
from wanbench.workloads.seeding import stream

FORWARD_SHARE = 1 / 3
NS_PER_S = 1_000_000_000
STRATA = 10


def ready_share(bucket: Bucket) -> float:
    """Return the part of the step, with the forward pass, that has run when `bucket` is complete; in (0, 1]."""
    return FORWARD_SHARE + (1 - FORWARD_SHARE) * bucket.ready


class StepTime:
    """The duration of each step of one worker: lognormal, with a given mean and coefficient of variation.

    A worker's duration of a step depends only on (seed, rank, step). So it is the same for every algorithm and on every
    testbed, and does not depend on earlier calls.

    Durations are stratified: every ten steps use each tenth of the distribution once, in random order. Each step still
    follows the lognormal distribution, but the means of windows of some dozens of steps hardly differ (with cv 0.02
    over 20 steps: by 0.2 % instead of 0.45 %). So scalability compares methods and not random draws.
    """

    def __init__(self, mean_s: float, cv: float, *, seed: int, rank: int) -> None:
        """`mean_s`: expected duration in seconds. `cv`: standard deviation over mean; 0 makes it constant."""
        self._mean_ns = mean_s * NS_PER_S
        self._sigma = math.sqrt(math.log1p(cv * cv))
        self._seed, self._rank = seed, rank
        self._order: tuple[int, list[int]] = (-1, [])  # of the block of the last call

    def ns(self, step: int) -> int:
        """Return the duration of step number `step` in nanoseconds, at least 1."""
        if self._sigma == 0:
            return max(1, round(self._mean_ns))
        block, number = divmod(step, STRATA)
        if block != self._order[0]:
            order = list(range(STRATA))
            stream(self._seed, "step_time order", self._rank, block).shuffle(order)
            self._order = block, order
        inside = stream(self._seed, "step_time", self._rank, step).random()
        # inv_cdf is not defined at 0, which random() can return.
        z = NormalDist().inv_cdf(max((self._order[1][number] + inside) / STRATA, 1e-12))
        # The mean of a lognormal is exp(mu + sigma^2 / 2). Without the correction, more variation would make steps
        # longer.
        return max(1, round(self._mean_ns * math.exp(self._sigma * z - self._sigma**2 / 2)))


@dataclass
class Slowdown:
    """Compute takes `factor` times as long in steps that begin between two times.

    Attributes:
        factor: a number above 0.
        at_step: times count from the end of this number of steps; None: from the beginning of the first step.
        begin_ns, end_ns: the two times; None: the slowdown does not end.
    """

    factor: float
    at_step: int | None
    begin_ns: int
    end_ns: int | None


class Slowdowns:
    """All slowdowns of one worker. The factors of slowdowns at the same time are multiplied.

    Attributes:
        turned_ns: for each slowdown, in order: when the first slow step began, and when the first step after the slow
            ones began; None if there was none.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._all = [Slowdown(**entry) for entry in entries]
        self.turned_ns: list[list[int | None]] = [[None, None] for _ in self._all]
        self._awaited = {slow.at_step for slow in self._all}
        self._began: dict[int | None, int] = {}

    def factor(self, step: int, now_ns: int) -> float:
        """Return the factor for step number `step`, which begins now. Call this once per step, in order."""
        if step == 0:
            self._began[None] = now_ns
        if step in self._awaited:
            self._began[step] = now_ns
        factor = 1.0
        for slow, turned_ns in zip(self._all, self.turned_ns, strict=True):
            origin = self._began.get(slow.at_step)
            if (
                origin is not None
                and slow.begin_ns <= now_ns - origin
                and (slow.end_ns is None or now_ns - origin < slow.end_ns)
            ):
                factor *= slow.factor
                if turned_ns[0] is None:
                    turned_ns[0] = now_ns
            elif turned_ns[0] is not None and turned_ns[1] is None:
                turned_ns[1] = now_ns
        return factor


class EmulatedCompute:
    """Replays the schedule of a step on the clock, after any real work of the step.

    Attributes:
        compute_ns: emulated time of all steps so far. Any further time of a step (real work that did not fit, late
            timers) is overhead.
    """

    def __init__(
        self, step_time: StepTime, buckets: Sequence[Bucket], clock: Clock, slow: Slowdowns | None = None
    ) -> None:
        """`buckets`: in the order of completion. `slow`: the times when compute takes longer."""
        self._step_time, self._buckets, self._clock, self._slow = step_time, buckets, clock, slow
        self.compute_ns = 0

    def replay(self, step: int, began_ns: int, ready: Callable[[Bucket], None] | None) -> None:
        """Sleep until the end of step number `step`, which began at `began_ns` on the clock.

        `ready` is called for each bucket at its time. Deadlines count from the beginning of the step, so late wake-ups
        and slow callbacks do not add up. All real work is done first, because a greenlet must not switch inside
        autograd. The schedule is exact if the work fits into the time of the forward pass.
        """
        duration_ns = self._step_time.ns(step)
        if self._slow is not None:
            duration_ns = round(duration_ns * self._slow.factor(step, began_ns))
        self.compute_ns += duration_ns
        if ready is not None:
            for bucket in self._buckets:
                self._sleep_until(began_ns + round(duration_ns * ready_share(bucket)))
                ready(bucket)
        self._sleep_until(began_ns + duration_ns)

    def _sleep_until(self, deadline_ns: int) -> None:
        remaining_ns = deadline_ns - self._clock.now()
        if remaining_ns > 0:
            self._clock.sleep(remaining_ns / NS_PER_S)
