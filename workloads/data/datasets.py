"""What data sets have in common: images, batches, and the share of right answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class WorkloadError(ValueError):
    """A workload does not exist or is invalid. One line names the key, the value and what was expected."""


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

    def batch(self, chosen: Sequence[int], random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Return these training images, with mean 0 and variance 1, and their classes."""
        labels = [self.train_labels[index] for index in chosen]
        return self.normalised(self.train[chosen]), self.test_labels.new_tensor(labels)

    def accuracy(self, module: torch.nn.Module) -> float:
        """Return the share of test images with the right predicted class."""
        return accuracy_of(
            module, lambda part: self.normalised(self.test[part]), self.test_labels, at_once=self.at_once
        )


def accuracy_of(
    module: torch.nn.Module, inputs: Callable[[slice], torch.Tensor], labels: torch.Tensor, *, at_once: int
) -> float:
    """Return the share of test samples with the right predicted class. `inputs` loads `at_once` samples at a time."""
    right = 0
    for start in range(0, len(labels), at_once):
        part = slice(start, start + at_once)
        right += int((module(inputs(part)).argmax(dim=-1) == labels[part]).sum())
    return right / labels.numel()


def batches(
    data: Any, batch_size: int, random: Random, indices: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield endless batches of exactly `batch_size` of the samples `indices`, reshuffled after each pass.

    A batch can span two passes, so a shard can be smaller than a batch.

    Args:
        data: a data set, whose method `batch` returns the inputs and targets of some samples.
    """
    waiting, taken = list[int](), 0
    while True:
        if len(waiting) - taken < batch_size:
            waiting, taken = waiting[taken:], 0
        while len(waiting) < batch_size:
            epoch = list(indices)
            random.shuffle(epoch)
            waiting.extend(epoch)
        yield data.batch(waiting[taken : taken + batch_size], random)
        taken += batch_size
