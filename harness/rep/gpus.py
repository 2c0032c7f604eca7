"""The NVIDIA GPUs that each worker of a program can use."""

from __future__ import annotations

import os
from pathlib import Path

from wanbench.harness.errors import HostError

DRIVER = Path("/proc/driver/nvidia/gpus")


def assign_gpus(workers: int, processes: int, driver: Path = DRIVER) -> tuple[str, ...]:
    """Return the GPUs of each worker, e.g. ("0,1", "2,3"): one per process, in turn. Workers share them if too few.

    Args:
        workers: number of workers.
        processes: number of processes per worker.
        driver: folder in which the driver lists its GPUs.

    Raises:
        HostError: this host has no GPU, or fewer than a worker has processes.
    """
    gpus = _usable(driver)
    if not gpus:
        raise HostError(
            f"--device cuda: no NVIDIA GPU on this host ({driver} lists none, or CUDA_VISIBLE_DEVICES hides it); "
            "use --device cpu"
        )
    if len(gpus) < processes:
        raise HostError(
            f"--device cuda: {processes} processes per worker need as many GPUs, and this host has {len(gpus)}; "
            "use a smaller --nproc-per-node"
        )
    numbers = [gpus[n % len(gpus)] for n in range(workers * processes)]
    return tuple(",".join(numbers[n : n + processes]) for n in range(0, len(numbers), processes))


def _usable(driver: Path) -> list[str]:
    count = len(list(driver.glob("*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or count == 0:
        return [str(number) for number in range(count)]
    return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
