"""A convolutional network for the 28x28 images of MNIST, small enough to train in seconds on one core.

Its convolutions have stride 2 instead of pooling, which would take most of the time. For batch norm see `digits_cnn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.workloads.models.digits_cnn import initialise
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

_CHANNELS = (8, 16)
_KERNEL = 5
_SIDES = (14, 7)
_HIDDEN = 32
_CLASSES = 10


def tensors() -> tuple[ParameterTensor, ...]:
    """Its 8 parameter tensors (28 874 elements), with the multiply-adds of their layers' backward pass per sample."""
    first, second = _CHANNELS
    features = second * _SIDES[1] ** 2
    window = _KERNEL**2
    return (
        ParameterTensor("0.weight", (first, 1, _KERNEL, _KERNEL), float(first * window * _SIDES[0] ** 2)),
        ParameterTensor("0.bias", (first,), 0.0),
        ParameterTensor("2.weight", (second, first, _KERNEL, _KERNEL), float(2 * first * window * features)),
        ParameterTensor("2.bias", (second,), 0.0),
        ParameterTensor("5.weight", (_HIDDEN, features), float(2 * _HIDDEN * features)),
        ParameterTensor("5.bias", (_HIDDEN,), 0.0),
        ParameterTensor("7.weight", (_CLASSES, _HIDDEN), float(2 * _CLASSES * _HIDDEN)),
        ParameterTensor("7.bias", (_CLASSES,), 0.0),
    )


def module_of(generator: torch.Generator) -> torch.nn.Module:
    """The network: images of shape (batch, 1, 28, 28) to scores of shape (batch, 10)."""
    from torch import nn

    padding = _KERNEL // 2
    module = nn.Sequential(
        nn.Conv2d(1, _CHANNELS[0], _KERNEL, stride=2, padding=padding),
        nn.ReLU(),
        nn.Conv2d(*_CHANNELS, _KERNEL, stride=2, padding=padding),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(_CHANNELS[1] * _SIDES[1] ** 2, _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, _CLASSES),
    )
    initialise(module, generator)
    return module
