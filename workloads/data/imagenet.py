"""ImageNet (ILSVRC 2012), or other images in its layout: `train/<class>/*.JPEG` and `val/<class>/*.JPEG`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from wanbench.workloads.data.datasets import WorkloadError, accuracy_of

if TYPE_CHECKING:
    import torch

CLASSES = 1000
SIDE = 224
PARTS = ("train", "val")
_RESIZED = 256
_SUFFIXES = (".jpeg", ".jpg", ".png")
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_EVALUATED_AT_ONCE = 32
_CROP_TRIES = 10
_EXPECTED = "expected train/<class>/*.JPEG and val/<class>/*.JPEG"


@dataclass(frozen=True)
class Images:
    """Image files and their classes, in the order of names.

    Attributes:
        train, test: paths. train_labels, test_labels: classes, counted from 0 in the order of the folder names.
    """

    train: tuple[Path, ...]
    train_labels: tuple[int, ...]
    test: tuple[Path, ...]
    test_labels: tuple[int, ...]

    def batch(self, chosen: Sequence[int], random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a random part of each image, resized and randomly mirrored (Szegedy et al. 2015), and the classes."""
        import torch

        x = torch.stack([_random_part(self.train[index], random) for index in chosen])
        return x, torch.tensor([self.train_labels[index] for index in chosen])

    def accuracy(self, module: torch.nn.Module) -> float:
        """Return the share of test images with the right predicted class, from their center."""
        import torch

        return accuracy_of(
            module,
            lambda part: torch.stack([_middle(path) for path in self.test[part]]),
            torch.tensor(self.test_labels),
            at_once=_EVALUATED_AT_ONCE,
        )


def check(folder: Path) -> None:
    """Check the layout of `folder`, without listing every image. Raises: WorkloadError."""
    if not folder.is_dir():
        raise WorkloadError(f"workload.data: {folder}: no such folder; {_EXPECTED}")
    classes = {part: _classes(folder, part) for part in PARTS}
    unknown = [name for name in classes["val"] if name not in classes["train"]]
    if unknown:
        raise WorkloadError(f"workload.data: {folder}: val/{unknown[0]} is not a class of train; {_EXPECTED}")
    for part, names in classes.items():
        if not _files(folder / part / names[0]):
            raise WorkloadError(
                f"workload.data: {folder / part / names[0]}: no image ({', '.join(_SUFFIXES)}); {_EXPECTED}"
            )
    _pillow()


@lru_cache(maxsize=1)
def read(folder: Path) -> Images:
    """Find the files of a folder. Raises: WorkloadError: they are missing, or in another layout."""
    number = {name: index for index, name in enumerate(_classes(folder, "train"))}
    images = (
        [(path, number[name]) for name in _classes(folder, part) for path in _files(folder / part / name)]
        for part in PARTS
    )
    train, test = ([*zip(*labelled, strict=True)] for labelled in images)
    return Images(train[0], train[1], test[0], test[1])


def _classes(folder: Path, part: str) -> list[str]:
    inside = folder / part
    names = sorted(path.name for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []
    if not names:
        raise WorkloadError(f"workload.data: {folder}: no class folders in {part}; {_EXPECTED}")
    if len(names) > CLASSES:
        raise WorkloadError(f"workload.data: {inside}: {len(names)} classes; expected at most {CLASSES}")
    return names


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise WorkloadError("workload.data: JPEG images need Pillow; pip install pillow") from None
    return Image


def _opened(path: Path) -> Any:
    """Open an image as RGB. Raises: WorkloadError: it is not an image."""
    try:
        return _pillow().open(path).convert("RGB")
    except OSError as error:
        raise WorkloadError(f"workload.data: {path}: Pillow cannot read this image: {error}") from None


def _random_part(path: Path, random: Random) -> torch.Tensor:
    """Return a random part, 8 to 100 % of the area with sides of 3:4 to 4:3, or the whole image if none fits."""
    image = _opened(path)
    width, height = image.size
    box = (0, 0, width, height)
    for _ in range(_CROP_TRIES):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            box = (x, y, x + w, y + h)
            break
    resized = image.resize((SIDE, SIDE), _pillow().Resampling.BILINEAR, box=box)
    mirrored = random.random() < 0.5
    return _tensor(resized.transpose(_pillow().Transpose.FLIP_LEFT_RIGHT) if mirrored else resized)


def _middle(path: Path) -> torch.Tensor:
    """Resize the shorter side to 256, and return the 224 pixels in the center."""
    image = _opened(path)
    width, height = image.size
    cut = min(width, height) * SIDE / _RESIZED
    x, y = (width - cut) / 2, (height - cut) / 2
    box = (x, y, x + cut, y + cut)
    return _tensor(image.resize((SIDE, SIDE), _pillow().Resampling.BILINEAR, box=box))


def _tensor(image: Any) -> torch.Tensor:
    """Convert an image to float32, shape (3, SIDE, SIDE), normalised by channel."""
    import numpy as np
    import torch

    x = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_MEAN, _STD))
    return (x - mean) / std
