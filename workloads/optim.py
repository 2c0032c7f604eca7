"""The local optimiser: SGD with momentum, Nesterov and coupled weight decay on one flat vector.

It is linear in the gradients, which exact compensation of late averages rests on: `SGD.respond` is one step
on a pair of scalars, and `SGD.step` from zero is one step of the response on vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workloads.comm.base import Vector


class OptimizerError(ValueError):
    """An optimiser setting is out of range. The message is one line."""


@dataclass(frozen=True)
class SGDConfig:
    """The optimiser's part of a spec's `[train]` table.

    Attributes:
        optimizer: "sgd".
        lr: peak learning rate.
        momentum: beta, in [0, 1).
        nesterov: Nesterov momentum, as PyTorch defines it; needs momentum above 0.
        weight_decay: coupled: added to the gradient as weight_decay * w.
        schedule: "constant" or "cosine" (to 0 at `total_steps`), both after the warm-up.
        warmup_steps: steps over which the rate grows linearly to `lr`; 0 for none.
        total_steps: where the cosine ends; needed by "cosine" only.

    Raises:
        OptimizerError: a value is out of range.
    """

    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None

    def __post_init__(self) -> None:
        _require(self.optimizer == "sgd", "optimizer", self.optimizer, "'sgd'")
        _require(_is_number(self.lr) and self.lr > 0, "lr", self.lr, "a number above 0")
        in_range = _is_number(self.momentum) and 0 <= self.momentum < 1
        _require(in_range, "momentum", self.momentum, "a number from 0 to below 1")
        _require(isinstance(self.nesterov, bool), "nesterov", self.nesterov, "true or false")
        _require(not self.nesterov or self.momentum > 0, "nesterov", self.nesterov, "momentum above 0 with it")
        in_range = _is_number(self.weight_decay) and self.weight_decay >= 0
        _require(in_range, "weight_decay", self.weight_decay, "a number of 0 or more")
        known = self.schedule in ("constant", "cosine")
        _require(known, "schedule", self.schedule, "'constant' or 'cosine'")
        _require(_is_count(self.warmup_steps), "warmup_steps", self.warmup_steps, "a whole number, 0 or more")
        total = self.total_steps
        _require(total is None or _is_count(total), "total_steps", total, "a whole number, 0 or more")
        if self.schedule == "cosine":
            longer = total is not None and total > self.warmup_steps
            _require(longer, "total_steps", total, "more than warmup_steps, because schedule is 'cosine'")

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        if self.schedule == "constant" or self.total_steps is None:
            return self.lr
        progress = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.lr * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


class SGD:
    """PyTorch's `torch.optim.SGD` without dampening, on flat vectors.

    With beta = momentum, wd = weight_decay::

        q <- g + wd * w
        m <- beta * m + q                     (m starts at 0, so PyTorch's first step needs no special case)
        w <- w - lr * m                       (Nesterov: w - lr * (q + beta * m);  beta = 0: w - lr * q)

    Attributes:
        config: the settings.
        lr: the learning rate of the current step.
    """

    def __init__(self, config: SGDConfig) -> None:
        self.config = config
        self.lr = config.lr_at(0)

    @property
    def momentum(self) -> float:
        """beta; 0 means that `m` is never touched."""
        return self.config.momentum

    def advance(self, step: int) -> None:
        """Set `lr` for a step; it holds until the next call."""
        self.lr = self.config.lr_at(step)

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Update parameters `w` and momentum buffer `m`, each of shape (numel,), in place.

        `g` is left as it is: the algorithm may have sent these bits. Without momentum `m` is not touched.
        """
        lr, beta, decay = self.lr, self.config.momentum, self.config.weight_decay
        if beta:
            m.mul_(beta).add_(g)
            if decay:
                m.add_(w, alpha=decay)
            if not self.config.nesterov:
                w.add_(m, alpha=-lr)
                return
        # q is not formed, so that no scratch vector is needed: w - lr*q = (1 - lr*wd)*w - lr*g
        if decay:
            w.mul_(1 - lr * decay)
        w.add_(g, alpha=-lr)
        if beta:
            w.add_(m, alpha=-lr * beta)

    def respond(self, w: float, m: float, g: float = 0.0) -> tuple[float, float]:
        """What perturbations (w, m) of the state and g of the gradient have become after the current step.

        `respond(0, 0, 1)` is the answer to a unit of gradient; `respond(w, m)` carries an earlier one on.
        Exact for any learning rates, because the optimiser is linear; gradients are taken as given.
        """
        beta = self.config.momentum
        q = g + self.config.weight_decay * w
        if not beta:
            return w - self.lr * q, 0.0
        m = beta * m + q
        return w - self.lr * (q + beta * m if self.config.nesterov else m), m


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _require(ok: bool, name: str, value: object, expected: str) -> None:
    if not ok:
        raise OptimizerError(f"{name} = {value!r}; expected {expected}")
