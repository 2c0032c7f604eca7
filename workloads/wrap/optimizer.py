"""The optimizer of a user's own loop, as an algorithm sees it: its settings are read again at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch

from wanbench.workloads.comm.base import Vector
from wanbench.workloads.compute.optim import SGD, SGDConfig
from wanbench.workloads.wrap.flat import WrapError


class _Settings(NamedTuple):
    """The settings of a parameter group that algorithms can use."""

    lr: float
    momentum: float
    nesterov: bool
    weight_decay: float


class Followed:
    """An `Optimizer` over a `torch.optim.SGD` or `AdamW`, whose settings schedulers can change at any time.

    For SGD it also has the methods of `workloads.compute.optim.SGD`. Torch takes the step itself.

    Raises:
        WrapError: it is another optimizer, or has dampening or maximize.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        if not isinstance(optimizer, torch.optim.SGD | torch.optim.AdamW):
            name = type(optimizer).__name__
            raise WrapError(f"optimizer {name}: expected torch.optim.SGD or torch.optim.AdamW")
        self.is_sgd = isinstance(optimizer, torch.optim.SGD)
        self._optimizer = optimizer
        self._groups = _groups(optimizer)
        self._sgd: SGD | None = None

    @property
    def unequal(self) -> list[str]:
        """The settings that currently differ between parameter groups."""
        return [name for name, *values in zip(_Settings._fields, *self._groups, strict=True) if len(set(values)) > 1]

    @property
    def lr(self) -> float:
        """The learning rate of the current step."""
        return self._one("lr").lr

    @property
    def momentum(self) -> float:
        """beta, or AdamW's beta1; with 0 the momentum buffer is never used."""
        return self._one("momentum").momentum

    @property
    def nesterov(self) -> bool:
        """Whether SGD uses Nesterov momentum."""
        return self._one("nesterov").nesterov

    @property
    def weight_decay(self) -> float:
        """Weight decay; coupled with SGD, decoupled with AdamW."""
        return self._one("weight_decay").weight_decay

    def advance(self, step: int) -> None:
        """Begin a new step. Raises: WrapError: momentum was switched on or off."""
        del step
        before, self._groups, self._sgd = self._groups, _groups(self._optimizer), None
        if [group.momentum > 0 for group in before] != [group.momentum > 0 for group in self._groups]:
            raise WrapError("momentum was switched on or off after wrap; set it before wrap")

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Take one step of SGD on vectors of the algorithm."""
        self._linear().step(w, m, g)

    def lasting(self, w: Vector) -> Sequence[Vector]:
        """None: the user's optimiser keeps its own."""
        return ()

    def respond(self, w: float, m: float, g: float = 0.0) -> tuple[float, float]:
        return self._linear().respond(w, m, g)

    def _linear(self) -> SGD:
        if self._sgd is None:
            if not self.is_sgd:
                raise WrapError("this algorithm repeats the optimizer's step, which needs torch.optim.SGD")
            settings = self._one(*_Settings._fields)
            self._sgd = SGD(SGDConfig(**{**settings._asdict(), "lr": 1.0}))
            self._sgd.lr = settings.lr  # a spec cannot set 0, but schedulers begin with it
        return self._sgd

    def _one(self, *names: str) -> _Settings:
        """Return the settings, of which all groups must share these. Raises: WrapError."""
        differing = [name for name in self.unequal if name in names]
        if differing:
            raise WrapError(f"parameter groups differ in {', '.join(differing)}; this algorithm needs equal ones")
        return self._groups[0]


def _groups(optimizer: torch.optim.Optimizer) -> list[_Settings]:
    return [_settings(group) for group in optimizer.param_groups]


def _settings(group: dict[str, Any]) -> _Settings:
    if group["maximize"]:
        raise WrapError("maximize = True; expected False: negate the loss")
    decay = float(group["weight_decay"])
    if "betas" in group:
        return _Settings(float(group["lr"]), float(cast(Any, group["betas"][0])), False, decay)
    if group["dampening"]:
        raise WrapError(f"dampening = {group['dampening']:g}; expected 0")
    return _Settings(float(group["lr"]), float(group["momentum"]), bool(group["nesterov"]), decay)
