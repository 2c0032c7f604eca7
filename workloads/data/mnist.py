"""MNIST (LeCun, Cortes, Burges 1998), or other 28x28 images in its format, such as Fashion-MNIST: four IDX files."""

import gzip
import math
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.workloads.data.datasets import Images, WorkloadError

PARTS = ("train", "t10k")
SIDE = 28
CLASSES = 10
_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTES = 8
_EVALUATED_AT_ONCE = 500
_EXPECTED = "expected the four IDX files of MNIST, such as train-images-idx3-ubyte, plain or .gz"


def check(folder: Path) -> None:
    """Check the files' names, and read the test images and labels, which are small. Raises: WorkloadError."""
    if not folder.is_dir():
        raise WorkloadError(f"workload.data: {folder}: no such folder; {_EXPECTED}")
    for part in PARTS:
        for kind in ("images-idx3", "labels-idx1"):
            _file(folder, part, kind)
    _part(folder, "t10k")


@lru_cache(maxsize=1)
def read(folder: Path) -> Images:
    """Read all images of a folder. Raises: WorkloadError: they are missing, or in another format."""
    import numpy as np
    import torch

    train, train_labels = _part(folder, "train")
    test, test_labels = _part(folder, "t10k")
    # Counts values: as floats, the images would take 0.2 GB.
    share = torch.bincount(torch.from_numpy(train).flatten(), minlength=256).double() / train.size
    values = torch.arange(256, dtype=torch.float64)
    mean = float((share * values).sum())
    std = float((share * (values - mean) ** 2).sum().sqrt())
    return Images(
        train=torch.from_numpy(train).unsqueeze(1),
        test=torch.from_numpy(test).unsqueeze(1),
        train_labels=tuple(train_labels.tolist()),
        test_labels=torch.from_numpy(test_labels.astype(np.int64)),
        mean=torch.tensor(mean).view(1, 1, 1),
        std=torch.tensor(max(std, 1.0)).view(1, 1, 1),
        at_once=_EVALUATED_AT_ONCE,
    )


def _file(folder: Path, part: str, kind: str) -> Path:
    name = f"{part}-{kind}-ubyte"
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise WorkloadError(f"workload.data: {folder}: no file {name} or {name}.gz; {_EXPECTED}")


def _part(folder: Path, part: str) -> tuple[Any, Any]:
    """Return images (uint8, shape (images, 28, 28)) and labels (uint8, shape (images,))."""
    path = _file(folder, part, "labels-idx1")
    images, labels = idx(_file(folder, part, "images-idx3"), 3), idx(path, 1)
    if images.shape != (len(labels), SIDE, SIDE) or not len(labels):
        raise WorkloadError(
            f"workload.data: {path}: {len(labels)} labels for images of shape {images.shape}; expected as many labels "
            f"as images, which have {SIDE} x {SIDE} pixels"
        )
    if labels.max() >= CLASSES:
        raise WorkloadError(f"workload.data: {path}: label {labels.max()}; expected labels from 0 to {CLASSES - 1}")
    return images, labels


def idx(path: Path, dimensions: int) -> Any:
    """Return the array of an IDX file, plain or compressed with gzip: uint8, with this number of dimensions.

    The format: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each size as a big-endian
    32-bit number, then the values with the last dimension fastest.

    Raises:
        WorkloadError: the file cannot be read, or is damaged.
    """
    import numpy as np

    where = f"workload.data: {path}"
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{where}: damaged gzip file: {error}") from None
    except OSError as error:
        raise WorkloadError(f"{where}: cannot be read: {error.strerror}") from None
    magic, begin = bytes([0, 0, _UNSIGNED_BYTES, dimensions]), 4 + 4 * dimensions
    if content[:4] != magic:
        got = content[:4].hex() or "an empty file"
        raise WorkloadError(f"{where}: not an IDX file of this kind; it begins with {got}, expected {magic.hex()}")
    if len(content) < begin:
        raise WorkloadError(f"{where}: truncated in its header of {begin} bytes")
    shape = [int.from_bytes(content[at : at + 4]) for at in range(4, begin, 4)]
    if len(content) != begin + math.prod(shape):
        sizes = " x ".join(map(str, shape))
        raise WorkloadError(
            f"{where}: truncated or damaged; its header promises {sizes} values, the file has {len(content) - begin}"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape).copy()
