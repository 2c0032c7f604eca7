"""Residual networks of 6n + 2 layers for small images (He et al. 2016, section 4.2).

Three stages of n blocks; shortcuts have no parameters (option A). ResNet-110 for CIFAR-10 has n = 18. The networks with
n = 1 and fewer channels train on MNIST in a minute on one core. The work of a tensor is counted as in
`workloads.models.resnet50`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wanbench.workloads.models.resnet50 import classifier, conv
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

    from wanbench.workloads.models.residual import ResNet

Norm = Literal["batch", "group", "none"]
CLASSES = 10


@dataclass(frozen=True)
class ThinResNet:
    """A network for one data set.

    Attributes:
        image: the shape of its images, (channels, height, width).
        widths: channels of the stages. blocks: n, of each stage. stride: of the first convolution.
        norm: what follows each convolution; with "none", convolutions have a bias instead.
    """

    image: tuple[int, int, int]
    widths: tuple[int, ...] = (8, 16, 32)
    blocks: int = 1
    stride: int = 1
    norm: Norm = "batch"

    def tensors(self) -> tuple[ParameterTensor, ...]:
        """Its parameter tensors, in registration order."""
        return (*self._convolutions(), *classifier(self.widths[-1], CLASSES))

    def network(self, generator: torch.Generator) -> ResNet:
        """The network: images of shape (batch, *image) to scores of shape (batch, 10)."""
        from wanbench.workloads.models.residual import BasicBlock, ResNet

        stages = [(width, self.blocks) for width in self.widths]
        channels = self.image[0]
        return ResNet(BasicBlock, stages, CLASSES, generator, channels=channels, stride=self.stride, norm=self.norm)

    def _convolutions(self) -> Iterator[ParameterTensor]:
        channels, *sides = self.image
        sides = [-(-side // self.stride) for side in sides]
        yield from self._conv("conv1", "bn1", self.widths[0], channels, sides, products=1)
        inputs = self.widths[0]
        for stage, width in enumerate(self.widths):
            if stage:
                sides = [-(-side // 2) for side in sides]
            for block in range(self.blocks):
                name = f"layer{stage + 1}.{block}"
                yield from self._conv(f"{name}.conv1", f"{name}.bn1", width, inputs, sides)
                yield from self._conv(f"{name}.conv2", f"{name}.bn2", width, width, sides)
                inputs = width

    def _conv(
        self, name: str, norm: str, outputs: int, inputs: int, sides: list[int], products: int = 2
    ) -> Iterator[ParameterTensor]:
        weight, *normalised = conv(name, norm, outputs, inputs, 3, sides[0] * sides[1], products)
        bias = [ParameterTensor(f"{name}.bias", (outputs,), 0.0)]
        yield from [weight, *(bias if self.norm == "none" else normalised)]
