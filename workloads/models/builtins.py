"""The built-in workloads, with the sources of their numbers. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wanbench.workloads import workload_keys
from wanbench.workloads.data import cifar10, digits, imagenet, mnist, mnist1d, stdlib
from wanbench.workloads.models import gpt, gpt_stdlib, mnist_gru
from wanbench.workloads.models.resnet import Norm, ThinResNet, resnet50, resnet50_tensors
from wanbench.workloads.models.small_cnn import DIGITS_CNN, MNIST_CNN
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch


class DataSet(NamedTuple):
    """What built-in workloads train on.

    Attributes:
        read: returns the data, from their folder if they have one (`learner.learn`).
        folder: its default, below $WANBENCH_DATA, or below `data` beside the spec; None if no files are read.
        check: refuses a folder that holds something else; quick.
        digest: hash of data that this machine provides, and others may have differently; None elsewhere.
        folds: whether `train.folds` can cut them.
    """

    read: Callable[..., Any]
    folder: str | None = None
    check: Callable[[Path], None] = lambda folder: None
    digest: Callable[[], str | None] = lambda: None
    folds: bool = False


DATA_SETS: Mapping[str, DataSet] = {
    "digits": DataSet(digits.read, folds=True),
    "MNIST": DataSet(mnist.read, "mnist", mnist.check),
    "MNIST-1D": DataSet(mnist1d.read),
    "CIFAR-10": DataSet(cifar10.read, cifar10.FOLDER, cifar10.check),
    "ImageNet": DataSet(imagenet.read, "imagenet", imagenet.check),
    "Python's standard library": DataSet(stdlib.read, digest=stdlib.digest),
}


@dataclass(frozen=True, slots=True)
class Builtin:
    """A workload with a name.

    Attributes:
        description: one line with the sources of its numbers.
        tensors: returns its parameter tensors, in registration order.
        step_time_s: mean duration of a step in seconds, emulated unless the spec asks for real compute.
        dataset: the one of `DATA_SETS` that it trains on; None if it trains no model.
        network: builds and initialises the model; None if it trains none.
        step_cv: coefficient of variation of the duration.
        site: how fast a site of several GPUs trains it, which is then one worker; None if a worker is one device.
    """

    description: str
    tensors: Callable[[], tuple[ParameterTensor, ...]]
    step_time_s: float
    dataset: str | None = None
    network: Callable[[torch.Generator], torch.nn.Module] | None = None
    step_cv: float = workload_keys.ASSUMED_STEP_CV
    site: gpt.Throughput | None = None


def _gpt(name: str, shape: tuple[int, int, int], site: gpt.Throughput) -> tuple[str, Builtin]:
    """A GPT of this width, number of blocks and context on a site of 8 GPUs, and its name."""
    device, per_s = next(iter(site.per_s.items()))
    width, blocks, context = shape
    return name, Builtin(
        f"a GPT of {blocks} blocks, width {width}, on a site of 8 {device.upper()} with 80 GB, timing only: "
        f"{site.tokens:,} tokens a step (half a batch of OPT, Zhang et al. 2022), {site.per_s[device]:,} tokens per "
        f"second (published: MPT of this shape, context {context}, bf16, FSDP, llm-foundry, "
        f"scripts/train/benchmarking/README.md at 061f2c7); in `advise`, {name},gpus=16,device={device},tokens=... "
        f"changes it (devices: {', '.join(site.per_s)})",
        lambda: gpt.tensors(*shape),
        site.tokens / per_s,
        site=site,
    )


def _small(data: str, image: tuple[int, int, int], *, stride: int = 2, norm: Norm = "batch") -> tuple[str, Builtin]:
    """A workload with a residual network of 8 layers, and its name."""
    suffix = {"batch": "", "group": "-groupnorm", "none": "-plain"}[norm]
    name = f"{data.lower().replace('-', '')}-resnet8{suffix}"
    resnet = ThinResNet(image, stride=stride, norm=norm)
    norms = {"batch": "with batch norm", "group": "with group norm", "none": "without normalisation"}[norm]
    folder = DATA_SETS[data].folder
    where = f"in the folder workload.data (default: data/{folder})" if folder else "generated here"
    return name, Builtin(
        f"a residual network of 8 layers {norms} that really trains on {data}, {where}; 100 ms per step (assumed)",
        resnet.tensors,
        0.1,  # more than ten times what a batch of 32 takes on one core (5 ms on MNIST-1D, 7 ms on MNIST)
        data,
        resnet.network,
    )


_RESNET110 = ThinResNet((3, 32, 32), (16, 32, 64), blocks=18)

BUILTINS: Mapping[str, Builtin] = {
    "resnet50-v100": Builtin(
        "ResNet-50 on one V100, timing only: 25 557 032 parameters in 161 tensors (He et al. 2016), 300 ms per step "
        "(published: Zhu, Lu, Lin, Han 2019)",
        resnet50_tensors,
        0.3,
    ),
    "resnet50-a100": Builtin(
        "ResNet-50 on one A100 with 80 GB, timing only: 104 ms per step of 256 images in mixed precision (published: "
        "2470 images per second, NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, March 2021)",
        resnet50_tensors,
        256 / 2470,
    ),
    "resnet50-a100-tf32": Builtin(
        "ResNet-50 on one A100 with 80 GB, timing only: 273 ms per step of 256 images in TF32 (published: 938 images "
        "per second, as for resnet50-a100)",
        resnet50_tensors,
        256 / 938,
    ),
    "resnet50-sgp-poster": Builtin(
        "ResNet-50 on a node of 8 V100, timing only: 311 ms per step, varying by 83 %; fitted, with the profile "
        "sgp-poster, to the all-reduce times on 4 and 32 nodes of Assran et al. 2019 (SGP, ICML poster)",
        resnet50_tensors,
        0.3113,
        step_cv=0.8275,
    ),
    "digits-cnn": Builtin(
        "a small CNN that really trains on scikit-learn's 8x8 digits; 20 ms per step (assumed)",
        DIGITS_CNN.tensors,
        0.02,  # ten times what a batch of 32 takes on one core (2 ms), so many workers can share a core
        "digits",
        DIGITS_CNN.network,
    ),
    "mnist-cnn": Builtin(
        "a small CNN (28 874 parameters) that really trains on MNIST, in the folder workload.data (default: "
        "data/mnist); 20 ms per step (assumed)",
        MNIST_CNN.tensors,
        0.02,  # more than ten times what a batch of 32 takes on one core
        "MNIST",
        MNIST_CNN.network,
    ),
    "mnist-gru": Builtin(
        "a recurrent network (6 282 parameters) that really trains on the rows of MNIST's images, in the folder "
        "workload.data (default: data/mnist); 50 ms per step (assumed)",
        mnist_gru.tensors,
        0.05,  # more than ten times what a batch of 32 takes on one core (4 ms)
        "MNIST",
        mnist_gru.module_of,
    ),
    "gpt-stdlib": Builtin(
        "a small transformer (136 960 parameters) that really trains on the source of Python's standard library, byte "
        "by byte; 80 ms per step (assumed)",
        gpt_stdlib.tensors,
        0.08,  # ten times what a batch of 8 takes on one core (8 ms)
        "Python's standard library",
        gpt_stdlib.module_of,
    ),
    "resnet110-cifar10": Builtin(
        "ResNet-110 (1 727 962 parameters, He et al. 2016) that really trains on CIFAR-10, in the folder "
        "workload.data (default: data/cifar-10-batches-py); 100 ms per step (assumed)",
        _RESNET110.tensors,
        0.1,  # the order of magnitude of a batch on a GPU of 2016; for your own hardware, set step_time
        "CIFAR-10",
        _RESNET110.network,
    ),
    "resnet50-imagenet": Builtin(
        "ResNet-50 (25 557 032 parameters, He et al. 2016) that really trains on ImageNet, in the folder "
        "workload.data (default: data/imagenet); 300 ms per step (published for a V100: Zhu, Lu, Lin, Han 2019)",
        resnet50_tensors,
        0.3,
        "ImageNet",
        resnet50,
    ),
    **dict(
        [
            _gpt("gpt-124m", (768, 12, 1024), gpt.Throughput(1 << 18, 64 * 1024, {"a100": 1_251_751})),
            _gpt("gpt-1b", (2048, 24, 2048), gpt.Throughput(1 << 19, 14 * 2048, {"h100": 363_645, "a100": 164_109})),
            _gpt("gpt-7b", (4096, 32, 2048), gpt.Throughput(1 << 20, 6 * 2048, {"h100": 85_144, "a100": 37_130})),
            _small("MNIST", (1, 28, 28)),
            _small("MNIST", (1, 28, 28), norm="group"),
            _small("MNIST", (1, 28, 28), norm="none"),
            _small("MNIST-1D", (1, 1, 40), stride=1),
            _small("CIFAR-10", (3, 32, 32)),
        ]
    ),
}
