"""The local optimiser on one flat vector: SGD with momentum, Nesterov and coupled weight decay, or AdamW.

SGD is linear in the gradients, so late averages can be compensated exactly: `SGD.respond` is one step on a pair of
scalars, and `SGD.step` from zero is one step of the response on vectors. AdamW is not linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from wanbench.workloads.comm.base import Phantom, Vector

if TYPE_CHECKING:
    import torch


class OptimizerError(ValueError):
    """An optimiser setting is out of range. The message is one line."""


class Optimizer(Protocol):
    """The interface of every optimiser to the algorithms."""

    @property
    def lr(self) -> float:
        """The learning rate of the current step."""

    @property
    def momentum(self) -> float:
        """The share of the momentum buffer that a step keeps; with 0 the buffer is never used."""

    def advance(self, step: int) -> None:
        """Set `lr` for a step; it holds until the next call."""

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Update `w` and momentum buffer `m`, each of shape (numel,), in place; `g` is not changed."""

    def lasting(self, w: Vector) -> Sequence[Vector]:
        """The optimiser's own vectors, each like `w`, which belong to a model besides w and m."""


_Rule = tuple[Callable[[float], bool], str]
_SHARE: _Rule = lambda value: 0 <= value < 1, "a number from 0 to below 1"
_ABOVE_0: _Rule = lambda value: value > 0, "a number above 0"
_RULES: Mapping[str, _Rule] = {
    "lr": _ABOVE_0,
    "weight_decay": (lambda value: value >= 0, "a number of 0 or more"),
    "momentum": _SHARE,
    "beta1": _SHARE,
    "beta2": _SHARE,
    "eps": _ABOVE_0,
}
"""Of each number: what it must be, and how messages say so. The spec's table has checked all types."""


@dataclass(frozen=True)
class OptimizerConfig:
    """The settings that all optimisers take from a spec's `[train]` table.

    Attributes:
        optimizer: the name of the optimiser.
        lr: peak learning rate.
        weight_decay: described at each optimiser.
        schedule: "constant" or "cosine" (to 0 at `total_steps`), both after the warm-up.
        warmup_steps: number of steps in which the rate grows linearly to `lr`; 0 for none. A run can end earlier.
        total_steps: the step at which the cosine ends; only "cosine" reads it.

    Raises:
        OptimizerError: a value is out of range.
    """

    optimizer: str = ""
    lr: float = 0.1
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup_steps: int = 0
    total_steps: int = 0

    def __post_init__(self) -> None:
        for name, (is_right, expected) in _RULES.items():
            if name in self.__dataclass_fields__:
                _require(is_right(getattr(self, name)), name, getattr(self, name), expected)

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step; steps count from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return self.lr
        # A run can end within its warm-up, as the one-worker cell does: it measures few steps, and only their time.
        progress = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        return self.lr * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


@dataclass(frozen=True)
class SGDConfig(OptimizerConfig):
    """SGD's settings in a spec's `[train]` table, besides those of all optimisers.

    Attributes:
        optimizer: "sgd".
        weight_decay: coupled: weight_decay * w is added to the gradient.
        momentum: beta, in [0, 1).
        nesterov: Nesterov momentum, as PyTorch defines it; needs momentum above 0.

    Raises:
        OptimizerError: a value is out of range.
    """

    optimizer: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(not self.nesterov or self.momentum > 0, "nesterov", self.nesterov, "momentum above 0 with it")


@dataclass(frozen=True)
class AdamWConfig(OptimizerConfig):
    """AdamW's settings in a spec's `[train]` table, besides those of all optimisers.

    Attributes:
        optimizer: "adamw".
        weight_decay: decoupled: w shrinks by lr * weight_decay each step.
        beta1, beta2: decay rates of the running means of the gradient and of its square, each in [0, 1).
        eps: added to the root of the mean square, above 0.

    Raises:
        OptimizerError: a value is out of range.
    """

    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


def configured(train: Mapping[str, Any], total_steps: int) -> SGDConfig | AdamWConfig:
    """Return the configuration that a `[train]` table describes; keys of no optimiser are ignored.

    Raises:
        OptimizerError: a value is out of range, or belongs to the other optimiser.
    """
    kinds: tuple[type[SGDConfig], type[AdamWConfig]] = SGDConfig, AdamWConfig
    config, other = kinds if train.get("optimizer", "sgd") == SGDConfig.optimizer else reversed(kinds)
    for key in other.__dataclass_fields__.keys() - config.__dataclass_fields__.keys():
        if key in train:
            raise OptimizerError(
                f"{key} = {train[key]!r}; '{config.optimizer}' does not take it; remove it, or set "
                f"optimizer = '{other.optimizer}'"
            )
    return config(**{k: v for k, v in train.items() if k in config.__dataclass_fields__}, total_steps=total_steps)


def make(config: SGDConfig | AdamWConfig) -> SGD | AdamW:
    """Make the optimiser of a configuration."""
    return AdamW(config) if isinstance(config, AdamWConfig) else SGD(config)


class SGD:
    """PyTorch's `torch.optim.SGD` without dampening, on flat vectors.

    With beta = momentum, wd = weight_decay::

        q <- g + wd * w
        m <- beta * m + q                     (m starts at 0, so PyTorch's first step needs no special case)
        w <- w - lr * m                       (Nesterov: w - lr * (q + beta * m);  beta = 0: w - lr * q)

    Attributes:
        config: the settings.
        lr: the learning rate of the current step.
        momentum: beta; with 0, `m` is never used.
    """

    def __init__(self, config: SGDConfig) -> None:
        self.config, self.momentum = config, config.momentum
        self.lr = config.lr_at(0)

    def advance(self, step: int) -> None:
        """Set `lr` for a step; it holds until the next call."""
        self.lr = self.config.lr_at(step)

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Update parameters `w` and momentum buffer `m`, each of shape (numel,), in place.

        `g` is not changed, because the algorithm may have sent these bits. Without momentum, `m` is not changed.
        """
        lr, beta, decay = self.lr, self.config.momentum, self.config.weight_decay
        if beta:
            m.mul_(beta).add_(g)
            if decay:
                m.add_(w, alpha=decay)
            if not self.config.nesterov:
                w.add_(m, alpha=-lr)
                return
        # Without computing q, no scratch vector is needed: w - lr*q = (1 - lr*wd)*w - lr*g
        if decay:
            w.mul_(1 - lr * decay)
        w.add_(g, alpha=-lr)
        if beta:
            w.add_(m, alpha=-lr * beta)

    def lasting(self, w: Vector) -> Sequence[Vector]:
        """None: SGD has only w and m."""
        return ()

    def respond(self, w: float, m: float, g: float = 0.0) -> tuple[float, float]:
        """Return how perturbations (w, m) of the state and g of the gradient affect (w, m) after the current step.

        `respond(0, 0, 1)` is the response to a unit of gradient; `respond(w, m)` continues an earlier response. This is
        exact for any learning rates, because the optimiser is linear; it treats the gradients as fixed.
        """
        beta = self.config.momentum
        q = g + self.config.weight_decay * w
        if not beta:
            return w - self.lr * q, 0.0
        m = beta * m + q
        return w - self.lr * (q + beta * m if self.config.nesterov else m), m


class AdamW:
    """PyTorch's `torch.optim.AdamW` (Loshchilov and Hutter, ICLR 2019) on flat vectors.

    At its n-th step, n = 1, 2, ..., with b1 = beta1, b2 = beta2::

        w <- w - lr weight_decay w
        m <- b1 m + (1 - b1) g ;  v <- b2 v + (1 - b2) g^2
        w <- w - lr (m / (1 - b1^n)) / (sqrt(v / (1 - b2^n)) + eps)

    `v` belongs to the optimiser; algorithms only see w and m.

    Attributes:
        config: the settings.
        lr: the learning rate of the current step.
        momentum: beta1.
    """

    def __init__(self, config: AdamWConfig) -> None:
        self.config, self.momentum = config, config.beta1
        self.lr = config.lr_at(0)
        self._v: torch.Tensor | None = None
        self._steps = 0

    def advance(self, step: int) -> None:
        """Set `lr` and n for a step; `lr` holds until the next call."""
        self.lr, self._steps = self.config.lr_at(step), step

    def lasting(self, w: Vector) -> Sequence[Vector]:
        """v."""
        if isinstance(w, Phantom):
            return ()
        self._v = cast("torch.Tensor", w).new_zeros(w.numel()) if self._v is None else self._v
        return (self._v,)

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Update parameters `w` and first moment `m`, each of shape (numel,), in place; `g` is not changed."""
        if isinstance(w, Phantom):
            return
        w, m, g = (cast("torch.Tensor", vector) for vector in (w, m, g))
        b1, b2 = self.config.beta1, self.config.beta2
        self._v = g.new_zeros(g.numel()) if self._v is None else self._v
        self._steps += 1
        w.mul_(1 - self.lr * self.config.weight_decay)
        m.mul_(b1).add_(g, alpha=1 - b1)
        self._v.mul_(b2).addcmul_(g, g, value=1 - b2)
        root = (self._v / (1 - b2**self._steps)).sqrt_().add_(self.config.eps)
        w.addcdiv_(m, root, value=-self.lr / (1 - b1**self._steps))


def _require(ok: bool, name: str, value: object, expected: str) -> None:
    if not ok:
        raise OptimizerError(f"{name} = {value!r}; expected {expected}")
