"""Residual networks as lists of tensors (sizes of their gradients, and when the backward pass completes them).

**ResNet-50**: the architecture is that of He et al. 2016 (table 1, bottleneck blocks 3-4-6-3), for 224x224 images and
1000 classes, with the stride of a block in its 3x3 convolution as PyTorch users train it ("v1.5"). Tensors are in
torchvision's registration order.

**Thin ones** have 6n + 2 layers, for small images (section 4.2): three stages of n blocks, whose shortcuts have no
parameters (option A). ResNet-110 for CIFAR-10 has n = 18. The networks with n = 1 and fewer channels train on MNIST in
a minute on one core.

The work of a tensor is its layer's multiply-adds in the backward pass, for one image:

* convolution: one product of forward size for the gradient of its weight, and one for the gradient of its input,
  which the first layer does not need. The fully connected layer is counted likewise, all on its weight;
* batch norm: 5 operations per element of its output (two sums, then x' = a (dy - b - c x)), half on each of
  its two tensors, which complete together.

Assumption: time is proportional to these counts. On a GPU, batch norm is bound by memory and takes a larger share of
the time. As it is spread over all layers, the schedule changes little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

    from wanbench.workloads.models.residual import ResNet

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
CLASSES, FEW_CLASSES = 1000, 10
IMAGE = 224
BATCH_NORM_OPERATIONS = 5
Norm = Literal["batch", "group", "none"]


@lru_cache(maxsize=1)
def resnet50_tensors() -> tuple[ParameterTensor, ...]:
    """All 161 parameter tensors (25 557 032 elements), in registration order."""
    stem = conv("conv1", "bn1", 64, 3, 7, (IMAGE // 2) ** 2, products=1)
    return (*stem, *_stages(), *classifier(512 * EXPANSION, CLASSES))


def conv(
    conv: str, norm: str, outputs: int, inputs: int, kernel: int, pixels: int, products: int = 2
) -> Iterator[ParameterTensor]:
    """A convolution without bias and its batch norm; `pixels` are those of the output."""
    multiply_adds = outputs * inputs * kernel**2 * pixels
    yield ParameterTensor(f"{conv}.weight", (outputs, inputs, kernel, kernel), float(products * multiply_adds))
    half = BATCH_NORM_OPERATIONS * outputs * pixels / 2
    yield ParameterTensor(f"{norm}.weight", (outputs,), half)
    yield ParameterTensor(f"{norm}.bias", (outputs,), half)


def _stages() -> Iterator[ParameterTensor]:
    inputs, side = 64, IMAGE // 4
    for stage, blocks in enumerate(BLOCKS):
        width = 64 * 2**stage
        for block in range(blocks):
            before = side
            if stage > 0 and block == 0:
                side //= 2
            yield from _bottleneck(f"layer{stage + 1}.{block}", inputs, width, before, side, block == 0)
            inputs = width * EXPANSION


def _bottleneck(
    name: str, inputs: int, width: int, before: int, side: int, downsample: bool
) -> Iterator[ParameterTensor]:
    yield from conv(f"{name}.conv1", f"{name}.bn1", width, inputs, 1, before**2)
    yield from conv(f"{name}.conv2", f"{name}.bn2", width, width, 3, side**2)
    yield from conv(f"{name}.conv3", f"{name}.bn3", width * EXPANSION, width, 1, side**2)
    if downsample:
        yield from conv(f"{name}.downsample.0", f"{name}.downsample.1", width * EXPANSION, inputs, 1, side**2)


def classifier(features: int, classes: int) -> tuple[ParameterTensor, ...]:
    """The fully connected layer at the end."""
    weight = ParameterTensor("fc.weight", (classes, features), float(2 * classes * features))
    return weight, ParameterTensor("fc.bias", (classes,), 0.0)


def resnet50(generator: torch.Generator) -> ResNet:
    """ResNet-50: images of shape (batch, 3, 224, 224) to scores of shape (batch, 1000)."""
    from wanbench.workloads.models.residual import Bottleneck, ResNet

    stages = [(64 * 2**stage, count) for stage, count in enumerate(BLOCKS)]
    return ResNet(Bottleneck, stages, CLASSES, generator, stem=7, stride=2)


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
        return (*self._convolutions(), *classifier(self.widths[-1], FEW_CLASSES))

    def network(self, generator: torch.Generator) -> ResNet:
        """The network: images of shape (batch, *image) to scores of shape (batch, 10)."""
        from wanbench.workloads.models.residual import BasicBlock, ResNet

        stages = [(width, self.blocks) for width in self.widths]
        channels = self.image[0]
        return ResNet(BasicBlock, stages, FEW_CLASSES, generator, channels=channels, stride=self.stride, norm=self.norm)

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
