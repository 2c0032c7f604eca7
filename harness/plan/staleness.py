"""The step time of workers that vary, by bounded staleness: a short simulation without a network.

A worker's step begins when its previous one has ended and the average that it needs has arrived. An average arrives t
after the last worker issued it, unless it queues for the wire or a channel. So a delay lets a slow worker catch up for
D steps, and no longer. No formula is known for this; with D = 0 and p = 1 it is E[max] (`expected_maximum`).

Durations are drawn like those of emulated compute (`workloads.compute.emulated`): lognormal, each tenth of the
distribution once in ten steps. The draws are the same in every call, so differences between cells are not random.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from functools import lru_cache
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING

from wanbench.workloads.compute.emulated import STRATA

if TYPE_CHECKING:
    from wanbench.harness.plan.law import PredictInputs

# About 30 ms for the first cell with its workers and cv, 8 ms for another, and 0.6 s for 4096 workers. Other draws
# change a step by this much (standard deviation): 0.3 % at cv 0.3 and 1.5 % at cv 0.8; with a thousand workers 2 % and
# 6 %.
_DRAWS = 20_000
_LEAST_PIPELINES = 3  # of D + p steps
_LEAST_STEPS = 100


@lru_cache(maxsize=1024)
def expected_maximum(workers: int, cv: float, means: tuple[float, ...] = ()) -> float:
    """E[max] of `workers` independent lognormal step times with coefficient of variation `cv`.

    Stragglers lengthen a synchronous step by this factor. With X = exp(s z - s^2/2), s^2 = ln(1 + cv^2), it is the
    integral over z of X(z) dF(z), computed with Simpson's rule; F is the product of Phi(z - ln(m) / s) over the means
    m, which is Phi(z)^N if all are 1. A sum of p steps has cv / sqrt(p) and is also nearly lognormal.

    `means`: by worker, the largest is 1; () if all are 1.
    """
    if workers == 1 or cv == 0:
        return 1.0
    sigma = math.sqrt(math.log1p(cv * cv))
    alike = {math.log(mean) / sigma: count for mean, count in Counter(means or {1.0: workers}).items()}
    intervals = 800
    low, high = -9.0, 9.0 + sigma
    h = (high - low) / intervals
    total = 0.0
    for i in range(intervals + 1):
        z = low + i * h
        below, rise = 1.0, 0.0  # F, and its derivative over F
        for shift, count in alike.items():
            density = math.exp(-((z - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
            phi = 0.5 * math.erfc((shift - z) / math.sqrt(2))
            below *= phi**count
            rise += count * density / phi
        value = math.exp(sigma * z - sigma * sigma / 2) * below * rise
        total += value * (1 if i in (0, intervals) else 4 if i % 2 else 2)
    return total * h / 3


@lru_cache(maxsize=4096)
def mean_step_s(inputs: PredictInputs, latency_s: float, wire_s: float, slots: int | None) -> float:
    """The mean time of a step of the slowest worker, in seconds, in the steady state.

    Args:
        latency_s, wire_s: of one all-reduce. slots: as in `Link`.
    """
    link, times_s = Link(slots), inputs.step_times_s or (inputs.step_time_s,) * inputs.workers
    pipeline, cycle = inputs.delay + inputs.period, inputs.period * (inputs.delay // inputs.period + 1)
    fill = round_up(max(pipeline, STRATA), cycle)
    steps = round_up(max(_DRAWS // inputs.workers, _LEAST_PIPELINES * pipeline, _LEAST_STEPS), cycle)
    draws = _draws(inputs.workers, inputs.step_cv, fill + steps)
    clocks, began_s = [0.0] * inputs.workers, 0.0
    arrivals: dict[int, float] = {}
    for step, factors in enumerate(draws[: fill + steps], 1):
        clocks = [clock + mean_s * factor for clock, mean_s, factor in zip(clocks, times_s, factors, strict=True)]
        if step % inputs.period == 0:
            issued_s = max(clocks)
            arrivals[step] = [link.send(issued_s, latency_s, wire_s)[0] for _ in range(inputs.messages)][-1]
        due = arrivals.pop(step - inputs.delay, 0.0)
        clocks = [max(clock, due) for clock in clocks]
        if step == fill:
            began_s = max(clocks)
    return (max(clocks) - began_s) / steps


class Link:
    """Carries all-reduces: one at a time on the wire, and `slots` at a time in all; None is any number."""

    def __init__(self, slots: int | None) -> None:
        self._wire_free_s = 0.0
        self._slots_free_s = None if slots is None else [0.0] * slots

    def send(self, issued_s: float, latency_s: float, wire_s: float) -> tuple[float, float]:
        """When an all-reduce ends that is issued at `issued_s`, and how long it waits for the wire and uses it."""
        free = self._slots_free_s
        begin_s = issued_s if free is None else max(issued_s, heapq.heappop(free))
        self._wire_free_s = max(begin_s, self._wire_free_s) + wire_s
        end_s = self._wire_free_s + latency_s
        if free is not None:
            heapq.heappush(free, end_s)
        return end_s, self._wire_free_s - begin_s


@lru_cache(maxsize=16)
def _draws(workers: int, cv: float, steps: int) -> list[tuple[float, ...]]:
    """Durations of steps of mean 1: for each step, one of each worker."""
    random, normal = Random(0), NormalDist()
    sigma = math.sqrt(math.log1p(cv * cv))

    def ten_steps() -> list[float]:
        order = random.sample(range(STRATA), STRATA)
        quantiles = (max((stratum + random.random()) / STRATA, 1e-12) for stratum in order)
        return [math.exp(sigma * normal.inv_cdf(quantile) - sigma * sigma / 2) for quantile in quantiles]

    blocks = (list(zip(*(ten_steps() for _ in range(workers)), strict=True)) for _ in range(-(-steps // STRATA)))
    return [step for block in blocks for step in block]


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
