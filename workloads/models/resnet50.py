"""ResNet-50 as a list of tensors (sizes of its gradients, and when the backward pass completes them).

The architecture is that of He et al. 2016 (table 1, bottleneck blocks 3-4-6-3), for 224x224 images and 1000 classes,
with the stride of a block in its 3x3 convolution as PyTorch users train it ("v1.5"). Tensors are in torchvision's
registration order.

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
from functools import lru_cache
from typing import TYPE_CHECKING

from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

    from wanbench.workloads.models.residual import ResNet

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
CLASSES = 1000
IMAGE = 224
BATCH_NORM_OPERATIONS = 5


@lru_cache(maxsize=1)
def tensors() -> tuple[ParameterTensor, ...]:
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


def network(generator: torch.Generator) -> ResNet:
    """The network: images of shape (batch, 3, 224, 224) to scores of shape (batch, 1000)."""
    from wanbench.workloads.models.residual import Bottleneck, ResNet

    stages = [(64 * 2**stage, count) for stage, count in enumerate(BLOCKS)]
    return ResNet(Bottleneck, stages, CLASSES, generator, stem=7, stride=2)
