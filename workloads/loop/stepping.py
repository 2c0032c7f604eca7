"""When the steps of a user's own program ended, told to whoever started it.

`wanbench.step()` in a training loop appends one time to the file that the environment names, and the optimizer hook
that `inject` registers to `<file>.hook` beside it. Without that variable nothing happens, so a script may
keep the call. Standard library only: this runs inside the user's program.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

STEPS_FILE = "WANBENCH_STEPS_FILE"
INJECT = Path(__file__).parent / "inject"
_RECORD = struct.Struct("=q")
_HOOK = ".hook"
_open: dict[str, int] = {}


def step() -> None:
    """Say that a training step has ended. What the optimizer hook says does not count then."""
    _note("")


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
    _note(_HOOK)


def read_model(path: Path) -> dict[str, int] | None:
    """`params` and `tensors` of the first optimizer that stepped; None if none did, or the hook was not there."""
    try:
        size: dict[str, int] = json.loads(Path(f"{path}.model").read_text())
    except FileNotFoundError:
        return None
    return size


def _note(who: str) -> None:
    path = os.environ.get(STEPS_FILE)
    if path is None:
        return
    if who not in _open:
        _open[who] = os.open(path + who, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(_open[who], _RECORD.pack(time.monotonic_ns()))


def reporter(path: Path) -> str | None:
    """Who told the steps: "step", the program itself; "hook", its optimizer; None if nobody did."""
    return "step" if path.exists() else "hook" if Path(f"{path}{_HOOK}").exists() else None


def read_steps(path: Path) -> list[int]:
    """The times in ns of CLOCK_MONOTONIC at which steps ended, in order; empty if none was told."""
    who = reporter(path)
    data = b"" if who is None else Path(f"{path}{_HOOK if who == 'hook' else ''}").read_bytes()
    return [ns for (ns,) in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size])]


def forget(path: Path) -> None:
    """Remove what was told."""
    for name in (path, Path(f"{path}{_HOOK}"), Path(f"{path}.model")):
        name.unlink(missing_ok=True)


def environment(steps_file: Path, *, hook: bool, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to a program's environment so that its steps are told.

    Args:
        steps_file: written by the program. hook: also count `optimizer.step()` of torch, in Python programs.
        given: the environment that this is added to.
    """
    added = {STEPS_FILE: str(steps_file)}
    if hook:
        paths = [str(INJECT), *filter(None, [given.get("PYTHONPATH")])]
        added["PYTHONPATH"] = os.pathsep.join(paths)
    return added
