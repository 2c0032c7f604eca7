"""A convolutional network for 8x8 digits, small enough to train in seconds on one core.

It has no batch norm: running statistics are not parameters, so no algorithm averages them while it trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

_SIDE = 8
_CHANNELS = (1, 16, 32)
_HIDDEN = 64
_CLASSES = 10


def tensors() -> tuple[ParameterTensor, ...]:
    """Its 8 parameter tensors (38 282 elements), with the multiply-adds of their layers' backward pass."""
    first, second = _CHANNELS[1], _CHANNELS[2]
    features = second * (_SIDE // 2) ** 2
    pixels = _SIDE**2
    return (
        ParameterTensor("0.weight", (first, 1, 3, 3), float(first * 9 * pixels)),
        ParameterTensor("0.bias", (first,), 0.0),
        ParameterTensor("2.weight", (second, first, 3, 3), float(2 * second * first * 9 * pixels)),
        ParameterTensor("2.bias", (second,), 0.0),
        ParameterTensor("6.weight", (_HIDDEN, features), float(2 * _HIDDEN * features)),
        ParameterTensor("6.bias", (_HIDDEN,), 0.0),
        ParameterTensor("8.weight", (_CLASSES, _HIDDEN), float(2 * _CLASSES * _HIDDEN)),
        ParameterTensor("8.bias", (_CLASSES,), 0.0),
    )


def module_of(generator: torch.Generator) -> torch.nn.Module:
    """The network: images of shape (batch, 1, 8, 8) to scores of shape (batch, 10)."""
    from torch import nn

    features = _CHANNELS[2] * (_SIDE // 2) ** 2
    module = nn.Sequential(
        nn.Conv2d(_CHANNELS[0], _CHANNELS[1], 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(_CHANNELS[1], _CHANNELS[2], 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, _CLASSES),
    )
    initialise(module, generator)
    return module


def initialise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Initialise weights as He et al. 2015 (uniform, fan in), and biases as 0."""
    from torch import nn

    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(parameter)
