"""Which NVIDIA GPUs each worker of a program may use."""

from __future__ import annotations

import os
from pathlib import Path

from wanbench.harness.errors import HostError

DRIVER = Path("/proc/driver/nvidia/gpus")


def assign_gpus(workers: int, processes: int, driver: Path = DRIVER) -> tuple[str, ...]:
    """The GPUs of each worker, e.g. ("0,1", "2,3"): one a process, in turn; too few are shared among workers.

    Args:
        workers, processes: how many, and how many in each. driver: where its GPUs are listed.

    Raises:
        HostError: there is none, or not one for each process of a worker.
    """
    there = _usable(driver)
    if not there:
        raise HostError(
            f"--device cuda: no NVIDIA GPU here ({driver} lists none, or CUDA_VISIBLE_DEVICES hides it); "
            "--device cpu computes without"
        )
    if len(there) < processes:
        raise HostError(
            f"--device cuda: {processes} processes in a worker need as many GPUs, {len(there)} are here; "
            "use a smaller --nproc-per-node"
        )
    numbers = [there[n % len(there)] for n in range(workers * processes)]
    return tuple(",".join(numbers[n : n + processes]) for n in range(0, len(numbers), processes))


def _usable(driver: Path) -> list[str]:
    count = len(list(driver.glob("*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or count == 0:
        return [str(number) for number in range(count)]
    return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
