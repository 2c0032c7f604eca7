"""Where delayed updates diverge, against delay: computed, and found by training.

python benchmarks/stability.py    draws results/reference/stability again, and trains again for it, in a minute
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from wanbench.harness.show.figures.drawing import Drawing, Point, save, write_points  # noqa: E402
from wanbench.harness.show.figures.hover import note  # noqa: E402
from wanbench.harness.show.figures.layout import (  # noqa: E402
    End,
    Sheet,
    label_ends,
    least_in,
    logarithmic,
    strip_in,
)
from wanbench.harness.show.figures.style import (  # noqa: E402
    COLUMN_IN,
    PAGE_IN,
    SIMULATED,
    Style,
    point,
    styles,
    wanbench_style,
)
from wanbench.workloads.algorithms.base import Replica  # noqa: E402
from wanbench.workloads.algorithms.delayed import Delayed  # noqa: E402
from wanbench.workloads.comm.local import LocalComm, run_replicas  # noqa: E402
from wanbench.workloads.compute.optim import SGDConfig, make  # noqa: E402

FOLDER = ROOT / "results/reference/stability"
MOMENTA = (0.0, 0.9)
DELAYS = tuple(range(1, 21))
TRAINED = (1, 2, 4, 8, 12, 20)
STEPS = 1200
_STEP_SIZES = np.geomspace(0.01, 1.5, 256)  # 2 % apart
_SCAN = np.geomspace(1e-4, 4.0, 400)
_BISECTIONS = 40
_TICKS = (1, 4, 8, 12, 16, 20)


@dataclass(frozen=True)
class Limit:
    """The limit of one delay and momentum; step sizes are learning rate x curvature.

    Attributes:
        momentum: of the optimiser. delay: D in steps. computed: the limit by theory.
        converges, diverges: neighbouring step sizes of a training, None if it was not tried.
    """

    momentum: float
    delay: int
    computed: float
    converges: float | None = None
    diverges: float | None = None

    @property
    def trained(self) -> float | None:
        """The limit by training, between its two step sizes."""
        return None if self.converges is None or self.diverges is None else math.sqrt(self.converges * self.diverges)


def main() -> None:
    """Draw the figure, and print its files."""
    drawing = stability_drawing()
    for width_in, names in ((PAGE_IN, ("stability.svg", "stability.png")), (COLUMN_IN, ("stability-column.pdf",))):
        for name in names:
            print(save(drawing.draw(width_in), FOLDER / name))
    print(write_points(drawing.points(), FOLDER / "stability.csv"))


def stability_drawing() -> Drawing:
    """The figure and its points."""
    limits = _limits()
    worst = min(limits, key=lambda limit: limit.computed)
    title = (
        f"With momentum {worst.momentum:g}, the limit of lr × curvature is {worst.computed:.4f} at D = {worst.delay}, "
        f"with SSGD {synchronous_limit(worst.momentum):g}"
    )
    apart = 100 * (_STEP_SIZES[1] / _STEP_SIZES[0] - 1)
    about = (
        "lr × curvature: learning rate times second derivative; dashed: where the largest root of the characteristic "
        f"polynomial leaves the unit circle; points: two workers trained with delayed for {STEPS} steps, between the "
        f"largest value that converges and the next one, {apart:.0f} % above, that diverges; dotted: SSGD, computed"
    )
    about += "; the DTS paper trains with momentum and changes no hyper-parameter for a delay."
    levels = {momentum: synchronous_limit(momentum) for momentum in MOMENTA}
    text = f"{title}\nDelayed updates with exact compensation, on a quadratic"
    return Drawing(
        "stability",
        title,
        lambda width: stability(limits, levels, text, about, width),
        lambda: stability_points(limits, levels),
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


def synchronous_limit(momentum: float) -> float:
    """The limit of synchronous SGD with heavy-ball momentum on a quadratic: 2 (1 + momentum)."""
    return 2 * (1 + momentum)


def delayed_limit(delay: int, momentum: float) -> float:
    """The limit of `delayed`, in learning rate x curvature, dimensionless.

    On a quadratic of curvature h the replicas' difference y obeys, with a = lr h and delay D::

        y(n) = -a sum over k < D of c_k y(n-1-k),   c_k = (1 - momentum^(k+1)) / (1 - momentum)

    It shrinks while all roots of z^D + a (c_0 z^(D-1) + ... + c_(D-1)) are inside the unit circle. The replicas' mean
    moves as in synchronous SGD, whose limit is higher.

    Args:
        delay: D in steps, 1 or more. momentum: from 0 to below 1.
    """
    factors = np.array([(1 - momentum ** (k + 1)) / (1 - momentum) for k in range(delay)])
    first = next(index for index, a in enumerate(_SCAN) if _radius(a, factors) >= 1)
    low, high = _SCAN[first - 1], _SCAN[first]
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _radius(middle, factors) < 1 else (low, middle)
    return float(low)


def _radius(a: float, factors: np.ndarray) -> float:
    """The largest modulus of a root."""
    return float(np.abs(np.roots(np.concatenate([[1.0], a * factors]))).max())


def found_by_training(delay: int, momentum: float) -> tuple[float, float]:
    """The largest lr × curvature that converges, and the next larger one of the grid, which diverges.

    Every element of the parameters is a quadratic of its own, so one training tries all step sizes. The workers begin
    with different gradients.
    """
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


@wanbench_style()
def stability(
    limits: Sequence[Limit], synchronous: Mapping[float, float], title: str, about: str, width_in: float = PAGE_IN
) -> Figure:
    """A curve per momentum, with the limits found by training as points on it.

    Args:
        limits: by momentum and delay. synchronous: momentum -> limit of ssgd, drawn as a level.
        title: the finding, and the subject. about: the caption.
    """
    looks = styles([(_name(momentum), "delayed", {}) for momentum in synchronous])
    ssgd = styles([("ssgd", "ssgd", {})])["ssgd"]
    labels = [name for momentum in synchronous for name in (_name(momentum), _ssgd(momentum))]
    height_in = max(2.5 if width_in > COLUMN_IN else 2.1, least_in(labels))
    sheet = Sheet(width_in, height_in, title, about, {}, left_in=0.55, right_in=strip_in(labels))
    axes = sheet.axes()
    axes.set_xlim(0, max(limit.delay for limit in limits) + 1)
    axes.set_xticks(_TICKS)
    everything = [*(limit.computed for limit in limits), *synchronous.values()]
    logarithmic(axes.yaxis, min(everything) / 1.5, max(everything) * 1.5)
    axes.set_xlabel("delay D (steps)")
    axes.set_ylabel("largest stable lr × curvature")
    ends = []
    for momentum, level in synchronous.items():
        look, curve = looks[_name(momentum)], [limit for limit in limits if limit.momentum == momentum]
        delays, computed = [limit.delay for limit in curve], [limit.computed for limit in curve]
        axes.plot(delays, computed, color=look.colour, linestyle=SIMULATED, linewidth=0.8)
        _mark_limits(axes, curve, look)
        dotted: dict[str, Any] = {"color": ssgd.colour, "linestyle": (0, (1, 2)), "linewidth": 0.9}
        axes.axhline(level, **dotted)
        dashed = {**point(look), "linestyle": SIMULATED, "linewidth": 0.8}
        ends.append(End(_name(momentum), dashed, delays[-1], computed[-1], f"{computed[-1]:.3g}"))
        ends.append(End(_ssgd(momentum), dotted, axes.get_xlim()[1], level, f"{level:g}"))
    label_ends(axes, ends, sheet.axes_in)
    return sheet.figure


def _mark_limits(axes: Axes, limits: Sequence[Limit], look: Style) -> None:
    for limit in limits:
        if limit.trained is not None:
            axes.plot([limit.delay], [limit.trained], **point(look))
            note(
                axes, limit.delay, limit.trained, f"momentum {limit.momentum:g}, D = {limit.delay}: {limit.trained:.4f}"
            )


def _name(momentum: float) -> str:
    return f"delayed, momentum {momentum:g}"


def _ssgd(momentum: float) -> str:
    return f"SSGD, momentum {momentum:g}"


def stability_points(limits: Sequence[Limit], synchronous: Mapping[float, float]) -> list[Point]:
    """The limits as CSV rows; ssgd has no delay and was not trained here."""
    levels = [
        {"algorithm": "ssgd", "momentum": momentum, "delay_steps": 0, "computed_limit": level}
        for momentum, level in synchronous.items()
    ]
    delayed = [
        {
            "algorithm": "delayed",
            "momentum": limit.momentum,
            "delay_steps": limit.delay,
            "computed_limit": limit.computed,
            "converges_at": limit.converges,
            "diverges_at": limit.diverges,
        }
        for limit in limits
    ]
    return [*levels, *delayed]


if __name__ == "__main__":
    main()
