"""Where delayed updates diverge: computed, and found by training two replicas when the figure is drawn."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from wanbench.harness.analysis.stability import delayed_limit, synchronous_limit
from wanbench.harness.show.figures.gallery import Drawing
from wanbench.harness.show.figures.stability import Limit, points, stability
from wanbench.harness.show.papers import Figure

if TYPE_CHECKING:
    import torch

    from wanbench.workloads.comm.local import LocalComm

MOMENTA = (0.0, 0.9)
DELAYS = tuple(range(1, 21))
TRAINED = (1, 2, 4, 8, 12, 20)
STEPS = 1200
_STEP_SIZES = np.geomspace(0.01, 1.5, 256)  # 2 % apart


def stability_drawing(figure: Figure) -> Drawing:
    """The figure of kind "stability"; it needs no recorded run."""
    limits = _limits()
    worst = min(limits, key=lambda limit: limit.computed)
    title = (
        f"With momentum {worst.momentum:g}, the limit of lr × curvature is {worst.computed:.4f} at D = {worst.delay}, "
        f"with ssgd {synchronous_limit(worst.momentum):g}"
    )
    apart = 100 * (_STEP_SIZES[1] / _STEP_SIZES[0] - 1)
    about = (
        "lr × curvature: learning rate times second derivative; lines: where the largest root of the characteristic "
        f"polynomial leaves the unit circle; points: two workers trained with delayed for {STEPS} steps, between the "
        f"largest value that converges and the next one, {apart:.0f} % above, that diverges; dotted: ssgd, computed"
    )
    about = "; ".join(filter(None, [about, figure.note])) + "."
    levels = {momentum: synchronous_limit(momentum) for momentum in MOMENTA}
    text = f"{title}\nDelayed updates with exact compensation, on a quadratic"
    return Drawing(
        figure.name, title, lambda width: stability(limits, levels, text, about, width), lambda: points(limits, levels)
    )


@cache
def _limits() -> tuple[Limit, ...]:
    return tuple(
        Limit(
            momentum,
            delay,
            delayed_limit(delay, momentum),
            *(found_by_training(delay, momentum) if delay in TRAINED else ()),
        )
        for momentum in MOMENTA
        for delay in DELAYS
    )


def found_by_training(delay: int, momentum: float) -> tuple[float, float]:
    """The largest lr × curvature that converges, and the next larger one of the grid, which diverges.

    Every element of the parameters is a quadratic of its own, so one training tries all step sizes. The workers begin
    with different gradients.
    """
    import torch

    from wanbench.workloads.comm.local import run_replicas

    curvature = torch.tensor(_STEP_SIZES)  # float64; the learning rate is 1

    def train(comm: LocalComm) -> torch.Tensor:
        return _train(comm, curvature, delay, momentum)

    distance = torch.stack(run_replicas(2, train)).abs().amax(dim=0)
    early, late = distance[STEPS // 2 : 3 * STEPS // 4].amax(dim=0), distance[3 * STEPS // 4 :].amax(dim=0)
    converges = (late.isfinite() & (late <= early)).tolist()
    first = converges.index(False)
    return float(_STEP_SIZES[first - 1]), float(_STEP_SIZES[first])


def _train(comm: LocalComm, curvature: torch.Tensor, delay: int, momentum: float) -> torch.Tensor:
    """The parameters of one replica after every step, shape (steps, numel); the minimum of every quadratic is 0."""
    from wanbench.workloads.algorithms.base import Replica
    from wanbench.workloads.algorithms.delayed import Delayed
    from wanbench.workloads.compute.optim import SGDConfig, make

    w = curvature.new_zeros(len(curvature))
    optimizer = make(SGDConfig(lr=1.0, momentum=momentum))
    replica = Replica(w=w, m=w.clone(), optimizer=optimizer, comm=comm, shapes=((w.numel(),),))
    algorithm, after = Delayed(delay=delay), w.new_empty(STEPS, len(w))
    algorithm.start(replica)
    for step in range(STEPS):
        replica.step = step
        optimizer.advance(step)
        gradient = curvature * w + (2.0 * comm.rank - 1.5 if step == 0 else 0.0)
        optimizer.step(w, replica.m, algorithm.gradient(gradient))
        algorithm.stepped()
        after[step] = w
    algorithm.finish()
    return after
