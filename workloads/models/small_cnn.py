"""Convolutional networks for small images, which train in seconds on one core.

They have no batch norm: running statistics are not parameters, so no algorithm averages them while it trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

_CLASSES = 10


@dataclass(frozen=True)
class SmallCNN:
    """Two convolutions and two fully connected layers, for square images of one channel.

    Attributes:
        channels: of the convolutions. kernel: their side. sides: of the images behind each convolution.
        stride: of the convolutions; with 1, a pooling behind the second halves the images.
        hidden: features between the fully connected layers.
    """

    channels: tuple[int, int]
    kernel: int
    sides: tuple[int, int]
    stride: int
    hidden: int

    @property
    def features(self) -> int:
        """The number of inputs of the first fully connected layer."""
        return self.channels[1] * (self.sides[1] if self.stride > 1 else self.sides[1] // 2) ** 2

    def tensors(self) -> tuple[ParameterTensor, ...]:
        """Its 8 parameter tensors, with the multiply-adds of their layers' backward pass per sample."""
        (first, second), k, hidden, features = self.channels, self.kernel, self.hidden, self.features
        first_work, second_work = (
            outputs * k**2 * side**2 for outputs, side in zip(self.channels, self.sides, strict=True)
        )
        linear = 5 if self.stride > 1 else 6
        return (
            ParameterTensor("0.weight", (first, 1, k, k), float(first_work)),
            ParameterTensor("0.bias", (first,), 0.0),
            ParameterTensor("2.weight", (second, first, k, k), float(2 * first * second_work)),
            ParameterTensor("2.bias", (second,), 0.0),
            ParameterTensor(f"{linear}.weight", (hidden, features), float(2 * hidden * features)),
            ParameterTensor(f"{linear}.bias", (hidden,), 0.0),
            ParameterTensor(f"{linear + 2}.weight", (_CLASSES, hidden), float(2 * _CLASSES * hidden)),
            ParameterTensor(f"{linear + 2}.bias", (_CLASSES,), 0.0),
        )

    def network(self, generator: torch.Generator) -> torch.nn.Module:
        """The network: images of shape (batch, 1, side, side) to scores of shape (batch, 10).

        Weights are initialised as by He et al. 2015 (uniform, fan in), and biases as 0.
        """
        from torch import nn

        (first, second), k = self.channels, self.kernel
        module = nn.Sequential(
            nn.Conv2d(1, first, k, self.stride, k // 2),
            nn.ReLU(),
            nn.Conv2d(first, second, k, self.stride, k // 2),
            nn.ReLU(),
            *([nn.MaxPool2d(2)] if self.stride == 1 else []),
            nn.Flatten(),
            nn.Linear(self.features, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, _CLASSES),
        )
        for parameter in module.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)
            else:
                nn.init.zeros_(parameter)
        return module


DIGITS_CNN = SmallCNN(channels=(16, 32), kernel=3, sides=(8, 8), stride=1, hidden=64)
"""38 282 parameters, for images of 8 x 8."""
MNIST_CNN = SmallCNN(channels=(8, 16), kernel=5, sides=(14, 7), stride=2, hidden=32)
"""28 874 parameters, for images of 28 x 28. Its strides stand for pooling, which would take most of the time."""
