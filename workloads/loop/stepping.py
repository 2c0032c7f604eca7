"""Records when the steps of a user's program end, for the process that started it.

`wanbench.step()` in a training loop appends a time to the file that the environment names. The optimizer hook that
`inject` registers appends to `<file>.hook`. Without that environment variable nothing happens, so a script can keep
the call. This module runs inside the user's program and uses the standard library only.
"""

import json
import os
import struct
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STEPS_FILE = "WANBENCH_STEPS_FILE"
COUNTS_STEPS = "WANBENCH_COUNTS_STEPS"
INJECT = Path(__file__).parent / "inject"
_RECORD = struct.Struct("=qqqq")  # end of a step, processor time until then, process, operations until then
_HOOK = ".hook"
_open: dict[str, int] = {}
_counted: weakref.ref[Any] | None = None  # the optimizer whose steps count


def step() -> None:
    """Mark the end of a training step, for `wanbench exec` and workloads that are commands.

    Call it once per step in your training loop, if steps are not those of a torch optimizer. Steps counted from the
    optimizer are then ignored. Outside wanbench the call does nothing.

    Example:
        >>> for batch in batches:
        ...     train(batch)
        ...     wanbench.step()
    """
    _note("")


def stepped_by_optimizer(optimizer: Any) -> None:
    """Record a step, unless another optimizer stepped before: the second one of a loop, or one around the first.

    The hook calls this after each `optimizer.step()`. The first step also writes the size of the optimizer's
    `param_groups` to `<file>.model`.
    """
    global _counted
    if _counted is not None and (_counted() or optimizer) is not optimizer:
        return
    _counted = weakref.ref(optimizer)
    path = os.environ.get(STEPS_FILE)
    if path is not None and not os.path.exists(f"{path}.model"):
        tensors = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        size = {"params": sum(tensor.numel() for tensor in tensors), "tensors": len(tensors)}
        Path(f"{path}.model").write_text(json.dumps(size))
    _note(_HOOK)


def read_model(path: Path) -> dict[str, int] | None:
    """Return `params` and `tensors` of the first optimizer that stepped; None if no step was recorded by the hook."""
    try:
        size: dict[str, int] = json.loads(Path(f"{path}.model").read_text())
    except FileNotFoundError:
        return None
    return size


def _note(suffix: str) -> None:
    path = os.environ.get(STEPS_FILE)
    if path is None:
        return
    if suffix not in _open:
        _open[suffix] = os.open(path + suffix, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(_open[suffix], _RECORD.pack(time.monotonic_ns(), time.process_time_ns(), os.getpid(), _operations()))


def _operations() -> int:
    """The collectives and messages that this process has begun in groups of torch; -1 if torch does not count them."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        return sum(int(group._get_sequence_number_for_group()) for group in module._world.pg_map) if module else -1
    except (AttributeError, RuntimeError):
        return -1


def reporter(path: Path) -> str | None:
    """Return what recorded the steps: "step" (`wanbench.step`), "hook" (the optimizer), or None if there are none."""
    return "step" if path.exists() else "hook" if Path(f"{path}{_HOOK}").exists() else None


def read_steps(path: Path) -> list[int]:
    """Return the times in ns of CLOCK_MONOTONIC at which steps ended, in order; empty if none was recorded."""
    return [ns for ns, _, _, _ in _records(path)]


def read_operations(path: Path) -> int | None:
    """Return the operations that the program had begun at the end of its last step.

    None if it has no groups of torch, or was started again.
    """
    records = _records(path)
    if not records or records[-1][3] < 0 or len({process for _, _, process, _ in records}) > 1:
        return None
    return records[-1][3]


def read_idle_s(path: Path, warmup: int) -> float | None:
    """Return the seconds of a step, after the first `warmup`, in which the program used no processor.

    None without such a step, or if the program was started again.
    """
    records = _records(path)[max(warmup - 1, 0) :]
    if len(records) < 2 or len({process for _, _, process, _ in records}) > 1:
        return None
    (begin, used_before, *_), (end, used, *_) = records[0], records[-1]
    return max(end - begin - (used - used_before), 0) / 1e9 / (len(records) - 1)


def _records(path: Path) -> list[tuple[int, int, int, int]]:
    """Return the end and the processor time until then, both in ns, the process and the operations of every step.

    If processes report in turns, as those of a launcher such as torchrun do, only the steps of the first one count.
    """
    source = reporter(path)
    data = b"" if source is None else Path(f"{path}{_HOOK if source == 'hook' else ''}").read_bytes()
    records = [*_RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size])]
    first = [record for record in records if record[2] == records[0][2]]
    return records if records[: len(first)] == first else first


def forget(path: Path) -> None:
    """Remove the recorded steps."""
    for name in (path, Path(f"{path}{_HOOK}"), Path(f"{path}.model")):
        name.unlink(missing_ok=True)


def environment(steps_file: Path, *, hook: bool, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to add to a program's environment to record its steps.

    Args:
        steps_file: the file to record to. hook: also count `optimizer.step()` of torch, in Python programs.
        given: the environment to be extended.
    """
    added = {STEPS_FILE: str(steps_file)}
    return added | injected(given) | {COUNTS_STEPS: "1"} if hook else added


def injected(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with which a Python program runs the `sitecustomize` of `inject` first."""
    return {"PYTHONPATH": os.pathsep.join([str(INJECT), *filter(None, [given.get("PYTHONPATH")])])}
