"""CIFAR-10 (Krizhevsky 2009), read from its authors' folder `cifar-10-batches-py`."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from wanbench.workloads.data.datasets import Images, WorkloadError

if TYPE_CHECKING:
    import torch

FOLDER = "cifar-10-batches-py"
TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILE = "test_batch"
SIDE = 32
_VALUES = 3 * SIDE * SIDE
_CLASSES = 10
_PADDING = 4
_EVALUATED_AT_ONCE = 250
_EXPECTED = f"expected the folder {FOLDER} of the python version of CIFAR-10"


class ShiftedImages(Images):
    """Images that are trained on randomly shifted by up to 4 pixels, and mirrored (He et al. 2016, sec. 4.2)."""

    def batch(self, chosen: Sequence[int], random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        import torch
        from torch.nn.functional import pad

        whole, labels = super().batch(chosen, random)
        images = []
        for image in pad(whole, [_PADDING] * 4):
            y, x = random.randrange(2 * _PADDING + 1), random.randrange(2 * _PADDING + 1)
            cut = image[:, y : y + SIDE, x : x + SIDE]
            images.append(cut.flip(2) if random.random() < 0.5 else cut)
        return torch.stack(images), labels


def check(folder: Path) -> None:
    """Check the names of the files in `folder`, and the smallest file. Raises: WorkloadError."""
    if not folder.is_dir():
        raise WorkloadError(f"workload.data: {folder}: no such folder; {_EXPECTED}")
    missing = [name for name in (*TRAIN_FILES, TEST_FILE) if not (folder / name).is_file()]
    if missing:
        inside = folder / FOLDER
        hint = f"did you mean {inside}?" if inside.is_dir() else _EXPECTED
        raise WorkloadError(f"workload.data: {folder}: no file {missing[0]}; {hint}")
    _unpickled(folder / TEST_FILE)


@lru_cache(maxsize=1)
def read(folder: Path) -> ShiftedImages:
    """Read all images of a folder. Raises: WorkloadError: they are missing, or in another format."""
    import numpy as np
    import torch

    images, labels = zip(*(_unpickled(folder / name) for name in TRAIN_FILES), strict=True)
    train = torch.from_numpy(np.concatenate(images)).view(-1, 3, SIDE, SIDE)
    test_images, test_labels = _unpickled(folder / TEST_FILE)
    mean, std = _statistics(train)
    return ShiftedImages(
        train=train,
        test=torch.from_numpy(test_images.copy()).view(-1, 3, SIDE, SIDE),
        train_labels=tuple(label for part in labels for label in part),
        test_labels=torch.tensor(test_labels),
        mean=mean,
        std=std,
        at_once=_EVALUATED_AT_ONCE,
    )


def _statistics(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of each channel. Counts values: as floats, the images would take 0.6 GB."""
    import torch

    values = torch.arange(256, dtype=torch.float64)
    means, stds = [], []
    for channel in images.unbind(dim=1):
        share = torch.bincount(channel.flatten(), minlength=256) / channel.numel()
        means.append((share * values).sum())
        stds.append((share * (values - means[-1]) ** 2).sum().sqrt().clamp(min=1.0))
    return torch.stack(means).float().view(3, 1, 1), torch.stack(stds).float().view(3, 1, 1)


class _OnlyArrays(pickle.Unpickler):
    """Loads only NumPy arrays, because a pickle can run programs."""

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np
        from numpy._core import multiarray

        allowed = {"_reconstruct": multiarray._reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}
        if module.split(".")[0] == "numpy" and name in allowed:
            return allowed[name]
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"it uses {module}.{name}")


def _unpickled(path: Path) -> tuple[Any, list[int]]:
    """Return the images (uint8, shape (images, 3072)) and labels of one file."""
    import numpy as np

    wrong = f"workload.data: {path}: not a batch of CIFAR-10"
    try:
        batch = _OnlyArrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        images, labels = batch[b"data"], batch[b"labels"]
    except OSError as error:
        raise WorkloadError(f"workload.data: {path}: cannot be read: {error.strerror}") from None
    except Exception as error:  # a broken pickle can raise anything
        raise WorkloadError(f"{wrong} ({type(error).__name__}: {error}); {_EXPECTED}") from None
    right_shape = isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape == (len(labels), _VALUES)
    if not right_shape or not len(labels) or not all(isinstance(n, int) and 0 <= n < _CLASSES for n in labels):
        raise WorkloadError(f"{wrong}: expected uint8 images of shape (images, {_VALUES}), each with a label 0 to 9")
    return images, list(labels)
