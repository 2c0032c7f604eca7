"""The 8x8 handwritten digits bundled with scikit-learn (UCI, Alpaydin and Kaynak 1998), which need no download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from wanbench.workloads.seeding import stream

if TYPE_CHECKING:
    import torch

TEST_SAMPLES = 360
"""One in five of the 1797 digits is held out."""


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

    @property
    def train_labels(self) -> tuple[int, ...]:
        """The classes of the training images."""
        return tuple(self.train_y.tolist())

    def batch(self, chosen: Sequence[int], random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Return these training images and their classes."""
        return self.train_x[chosen], self.train_y[chosen]

    def accuracy(self, module: torch.nn.Module) -> float:
        """Return the share of test images with the right predicted class."""
        return float((module(self.test_x).argmax(dim=1) == self.test_y).float().mean())


@lru_cache(maxsize=16)  # a simulation calls it once per worker
def read(folder: Path | None = None, folds: int | None = None, fold: int = 0) -> Split:
    """Return the digits. `folder` is not read.

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
