"""When the steps of a user's own program ended, told to whoever started it.

`wanbench.step()` in a training loop, or the optimizer hook that `workloads/inject` registers, appends one time to
the file that the environment names. Without that variable nothing happens, so a script may keep the call. Standard
library only: this runs inside the user's program.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STEPS_FILE = "WANBENCH_STEPS"
INJECT = Path(__file__).parent / "inject"
_RECORD = struct.Struct("=q")
_fd: int | None = None
_by_hand = False


def step() -> None:
    """Say that a training step has ended. From the first call on, the optimizer hook is silent."""
    global _by_hand
    if not _by_hand:
        _by_hand = True
        _forget()
    _note()


def stepped_by_optimizer(groups: Iterable[dict[str, Any]]) -> None:
    """What the hook calls after each `optimizer.step()`.

    Args:
        groups: the optimizer's `param_groups`; at the first step their size is told as well, in `<file>.model`.
    """
    path = os.environ.get(STEPS_FILE)
    if path is not None and not os.path.exists(f"{path}.model"):
        tensors = [parameter for group in groups for parameter in group["params"]]
        size = {"params": sum(tensor.numel() for tensor in tensors), "tensors": len(tensors)}
        Path(f"{path}.model").write_text(json.dumps(size))
    if not _by_hand:
        _note()


def read_model(path: Path) -> dict[str, int] | None:
    """`params` and `tensors` of the first optimizer that stepped; None if none did, or the hook was not there."""
    try:
        size: dict[str, int] = json.loads(Path(f"{path}.model").read_text())
    except FileNotFoundError:
        return None
    return size


def _note() -> None:
    global _fd
    if _fd is None:
        path = os.environ.get(STEPS_FILE)
        if path is None:
            return
        _fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(_fd, _RECORD.pack(time.monotonic_ns()))


def _forget() -> None:
    """The hook may have counted steps before the program spoke for itself."""
    path = os.environ.get(STEPS_FILE)
    if path is not None and os.path.exists(path):
        os.truncate(path, 0)


def read_steps(path: Path) -> list[int]:
    """The times in ns of CLOCK_MONOTONIC at which steps ended, in order; empty if none was told."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [ns for (ns,) in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size])]


def environment(steps_file: Path, *, hook: bool) -> dict[str, str]:
    """What to add to a program's environment so that its steps are told.

    Args:
        steps_file: written by the program. hook: also count `optimizer.step()` of torch, in Python programs.
    """
    added = {STEPS_FILE: str(steps_file)}
    if hook:
        paths = [str(INJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        added["PYTHONPATH"] = os.pathsep.join(paths)
    return added
