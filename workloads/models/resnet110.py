"""ResNet-110 for CIFAR-10 (He et al. 2016, section 4.2): its tensors without torch, and its learner.

Three stages of 18 blocks with 16, 32 and 64 channels; shortcuts have no parameters (option A). The work of a tensor
is counted as in `workloads.models.resnet50`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from wanbench.workloads.data.shards import Portion
from wanbench.workloads.models.resnet50 import classifier, conv
from wanbench.workloads.models.tensors import ParameterTensor
from wanbench.workloads.seeding import torch_seed

if TYPE_CHECKING:
    from wanbench.workloads.models.learner import Learner
    from wanbench.workloads.models.residual import ResNet

WIDTHS = (16, 32, 64)
BLOCKS = 18
CLASSES = 10
IMAGE = 32


@lru_cache(maxsize=1)
def tensors() -> tuple[ParameterTensor, ...]:
    """All 329 parameter tensors (1 727 962 elements), in registration order."""
    stem = conv("conv1", "bn1", WIDTHS[0], 3, 3, IMAGE, products=1)
    return (*stem, *_stages(), *classifier(WIDTHS[-1], CLASSES))


def _stages() -> Iterator[ParameterTensor]:
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        side = IMAGE // 2**stage
        for block in range(BLOCKS):
            name = f"layer{stage + 1}.{block}"
            yield from conv(f"{name}.conv1", f"{name}.bn1", width, inputs, 3, side)
            yield from conv(f"{name}.conv2", f"{name}.bn2", width, width, 3, side)
            inputs = width


def network() -> ResNet:
    """Return the uninitialised network of 6n + 2 layers with n = 18."""
    from wanbench.workloads.models.residual import BasicBlock, ResNet

    return ResNet(BasicBlock, [(width, BLOCKS) for width in WIDTHS], CLASSES, stem=3)


def make(portion: Portion) -> Learner:
    """Build the learner of one worker. Raises: WorkloadError: the folder does not hold CIFAR-10."""
    import torch

    from wanbench.workloads.data import cifar10
    from wanbench.workloads.models.learner import Learner
    from wanbench.workloads.models.residual import initialise

    assert portion.folder is not None, "the registry requires it"
    data = cifar10.read(portion.folder)
    module = network()
    initialise(module, torch.Generator().manual_seed(torch_seed(portion.seed, "resnet110-cifar10", "init")))
    samples = cifar10.batches(data, portion.batch_size, portion.random(), portion.indices(data.train_labels))
    return Learner(module, samples, torch.nn.functional.cross_entropy, lambda: data.accuracy(module))
