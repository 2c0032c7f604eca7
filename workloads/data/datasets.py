"""The digits, which need no download, and batches of any data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from wanbench.workloads.seeding import stream

if TYPE_CHECKING:
    import torch


class WorkloadError(ValueError):
    """A workload does not exist or is invalid. One line names the key, the value and what was expected."""


TEST_SAMPLES = 360
"""One in five of the 1797 digits is held out."""


@dataclass(frozen=True)
class Images:
    """The images and labels of a data set.

    Attributes:
        train, test: images, bytes or float32, shape (images, channels, height, width).
        train_labels: classes, counted from 0. test_labels: classes as a tensor, int64.
        mean, std: mean and standard deviation of each channel of the training images, shape (channels, 1, 1).
        at_once: how many images are evaluated at a time.
    """

    train: torch.Tensor
    test: torch.Tensor
    train_labels: tuple[int, ...]
    test_labels: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor
    at_once: int

    def normalised(self, images: torch.Tensor) -> torch.Tensor:
        """Return images as floats, with the mean 0 and the variance 1 of the training images."""
        return (images.float() - self.mean) / self.std

    def accuracy(self, module: torch.nn.Module) -> float:
        """Return the share of test images with the right predicted class."""
        return accuracy_of(
            module, lambda part: self.normalised(self.test[part]), self.test_labels, at_once=self.at_once
        )


@dataclass(frozen=True)
class Split:
    """Training and test images.

    Attributes:
        train_x, test_x: images, float32 in [0, 1], shape (samples, 1, 8, 8).
        train_y, test_y: classes 0 to 9, int64, shape (samples,).
    """

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor


@lru_cache(maxsize=16)  # a simulation calls it once per worker
def digits(folds: int | None = None, fold: int = 0) -> Split:
    """Return the 8x8 handwritten digits bundled with scikit-learn (UCI, Alpaydin and Kaynak 1998).

    The test images do not depend on the seed of a run, so the accuracies of different runs can be compared.

    Args:
        folds: k cuts the 1797 images into k parts of nearly equal size; over all k parts, each image is tested once.
        fold: the part to test on, 0 to k - 1.
    """
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(bunch.target, dtype=torch.int64)
    order = list(range(len(y)))
    # Neighbouring samples are from the same writers. Without shuffling, all test samples would be from unknown writers.
    stream(0, "digits", "split").shuffle(order)
    if folds is None:
        test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    else:
        test, train = order[fold::folds], [index for at, index in enumerate(order) if at % folds != fold]
    return Split(x[train], y[train], x[test], y[test])


def batches(
    x: torch.Tensor, y: torch.Tensor, batch_size: int, random: Random, indices: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield endless batches of exactly `batch_size` of the samples `indices`, reshuffled after each pass.

    A batch can span two passes, so a shard can be smaller than a batch.
    """
    for chosen in endless(batch_size, random, indices):
        yield x[chosen], y[chosen]


def accuracy_of(
    module: torch.nn.Module, images: Callable[[slice], torch.Tensor], labels: torch.Tensor, *, at_once: int
) -> float:
    """Return the share of test images with the right predicted class. `images` loads `at_once` images at a time."""
    right = 0
    for start in range(0, len(labels), at_once):
        part = slice(start, start + at_once)
        right += int((module(images(part)).argmax(dim=1) == labels[part]).sum())
    return right / len(labels)


def endless(batch_size: int, random: Random, indices: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of endless batches, as `batches` does."""
    waiting, taken = list[int](), 0
    while True:
        if len(waiting) - taken < batch_size:
            waiting, taken = waiting[taken:], 0
        while len(waiting) < batch_size:
            epoch = list(indices)
            random.shuffle(epoch)
            waiting.extend(epoch)
        yield waiting[taken : taken + batch_size]
        taken += batch_size
