"""Real text that every machine has: the source of Python's standard library, as bytes.

Left out: tests, which images of Python lack; parts that distributions package separately or that newer versions have
dropped; tables of codecs; and files that depend on the build or on the host. So two installations of one release have
equal text, unless a distribution changes it. Other releases have other text, which `digest` tells apart.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from wanbench.workloads.data.datasets import WorkloadError, accuracy_of

if TYPE_CHECKING:
    import torch

CONTEXT = 64
"""Number of bytes in a sample's input."""
SYMBOLS = 256
TEST_WINDOWS = 512
"""Size of the test sample. One worker is evaluated in a fraction of a second."""

_OMITTED = {
    "test", "tests", "idle_test", "site-packages", "dist-packages", "distutils", "encodings", "ensurepip", "idlelib",
    "lib2to3", "pydoc_data", "tkinter", "turtledemo", "__phello__", "turtle.py", "sitecustomize.py", "usercustomize.py",
}  # fmt: skip
_OF_THE_BUILD = ("config-", "_sysconfigdata")
_EVALUATED_AT_ONCE = 64
_TESTED = 10  # one module in ten


@dataclass(frozen=True)
class Text:
    """Windows of the text: consecutive pieces of one module, which overlap by one byte.

    Attributes:
        train: uint8, shape (windows, CONTEXT + 1).
        test: int64, shape (at most TEST_WINDOWS, CONTEXT + 1), from modules that `train` does not have.
        train_labels: a number for the package of each training window, or for its module if it is in no package.
    """

    train: torch.Tensor
    test: torch.Tensor
    train_labels: tuple[int, ...]

    def batch(self, chosen: Sequence[int], random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Return bytes and the bytes that follow each, int64, shape (len(chosen), CONTEXT)."""
        windows = self.train[chosen].long()
        return windows[:, :-1], windows[:, 1:]

    def accuracy(self, module: torch.nn.Module) -> float:
        """Return the share of next bytes of the test sample that are predicted correctly."""
        return accuracy_of(module, lambda part: self.test[part, :-1], self.test[:, 1:], at_once=_EVALUATED_AT_ONCE)


@lru_cache(maxsize=1)
def sources() -> tuple[tuple[str, bytes], ...]:
    """Return name and content of every module, in the order of names such as "json/decoder.py".

    Raises:
        WorkloadError: this Python has no source of its standard library, or it cannot be read.
    """
    root = Path(sysconfig.get_path("stdlib"))
    try:
        modules = [(path.relative_to(root).as_posix(), path.read_bytes()) for path in _modules(root)]
    except OSError as error:
        raise WorkloadError(f"workload.name: gpt-stdlib: {error.filename}: cannot be read: {error.strerror}") from None
    if {is_test(name) for name, _ in modules} != {False, True}:
        raise WorkloadError(f"workload.name: gpt-stdlib: {root}: expected the source of Python's standard library")
    return tuple(sorted(modules))


def _modules(root: Path) -> Iterator[Path]:
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if not _is_omitted(name)]
        yield from (Path(folder, name) for name in files if name.endswith(".py") and not _is_omitted(name))


def _is_omitted(name: str) -> bool:
    return name in _OMITTED or name.startswith(_OF_THE_BUILD)


def is_test(name: str) -> bool:
    """Whether a module is held out. It depends on its name alone, so it is the same for other versions of Python."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % _TESTED == 0


@lru_cache(maxsize=1)
def digest() -> str:
    """Return a hash of the whole text, in hexadecimal. Raises: WorkloadError: as `sources`."""
    total = hashlib.sha256()
    for name, content in sources():
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


@lru_cache(maxsize=1)
def read(folder: Path | None = None) -> Text:
    """Return all training windows and the test sample, which is spread evenly over the test modules.

    `folder` is not read. Raises: WorkloadError: as `sources`.
    """
    import numpy as np
    import torch

    parts: dict[bool, list[Any]] = {False: [], True: []}
    packages: list[int] = []
    number: dict[str, int] = {}
    for name, content in sources():
        windows = _windows(content)
        parts[is_test(name)].append(windows)
        if not is_test(name):
            package = name.partition("/")[0]  # "json" of "json/decoder.py", "argparse.py" itself
            packages += [number.setdefault(package, len(number))] * len(windows)
    tests = np.concatenate(parts[True])
    chosen = np.linspace(0, len(tests) - 1, min(TEST_WINDOWS, len(tests))).astype(int)
    return Text(torch.from_numpy(np.concatenate(parts[False])), torch.from_numpy(tests[chosen]).long(), tuple(packages))


def _windows(content: bytes) -> Any:
    """Cut one module into windows, shape (windows, CONTEXT + 1); a last incomplete one is left out."""
    import numpy as np

    count = max(0, len(content) - 1) // CONTEXT
    values = np.frombuffer(content, np.uint8)
    starts = CONTEXT * np.arange(count)[:, None]
    return values[starts + np.arange(CONTEXT + 1)]
