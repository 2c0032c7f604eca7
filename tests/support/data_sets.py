"""Tiny data sets in the formats of the real ones."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np

from wanbench.workloads.models.builtins import BUILTINS

CIFAR_FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def cifar10(folder: Path, images: int = 20) -> Path:
    """Write batches as the authors' Python 2 did: byte keys, protocol 2; the brightness tells the class."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for name in CIFAR_FILES:
        labels = [index % 10 for index in range(images)]
        dark = random.integers(0, 30, (images, 3072))
        data = (dark + 20 * np.array(labels)[:, None]).astype(np.uint8)
        batch = {b"batch_label": name.encode(), b"labels": labels, b"data": data, b"filenames": [b"x.png"] * images}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def idx(values: np.ndarray) -> bytes:
    """Write unsigned bytes in the IDX format."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def mnist(folder: Path, images: int = 200, *, compressed: bool = False) -> Path:
    """Write images with a bright stripe at a height that tells the class, and 50 test images."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(2)
    for part, count in (("train", images), ("t10k", 50)):
        labels = np.arange(count) % 10
        pixels = random.integers(0, 60, (count, 28, 28))
        for image, label in zip(pixels, labels, strict=True):
            image[4 + 2 * label : 6 + 2 * label] += 190
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            content, name = idx(values), f"{part}-{kind}-ubyte"
            (folder / f"{name}.gz" if compressed else folder / name).write_bytes(
                gzip.compress(content) if compressed else content
            )
    return folder


def imagenet(folder: Path, classes: int = 3, images: int = 4) -> Path:
    """Write class folders with JPEG files of different sizes; the colour tells the class, and one image is grey."""
    from PIL import Image

    for part in ("train", "val"):
        for label in range(classes):
            inside = folder / part / f"n0000{label}"
            inside.mkdir(parents=True)
            for index in range(images):
                colour = [30, 30, 30]
                colour[label % 3] = 200
                image = Image.new("RGB", (260 + 10 * index, 240 + label), tuple(colour))
                image = image.convert("L") if (label, index) == (0, 1) else image
                image.save(inside / f"n0000{label}_{index}.JPEG")
    return folder


def given(name: str, folder: Path) -> dict[str, str]:
    """Return the `data` keys of `[workload]` for a built-in, and make its data set unless it is bundled."""
    data = BUILTINS[name].dataset
    make = {"MNIST": mnist, "CIFAR-10": cifar10, "ImageNet": imagenet}.get(str(data))
    return {} if make is None else {"data": str(make(folder / name))}
