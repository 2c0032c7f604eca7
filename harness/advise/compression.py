"""What compression costs on this host's processor. Elsewhere `advise` lets it take no time, as on a GPU."""

from __future__ import annotations

import statistics
import time
from typing import Any

from wanbench.harness.plan.cell import TrainingCell

_SIDE, _REPEATS = 1024, 3


def ns_per_byte(compression: Any, side: int = _SIDE, repeats: int = _REPEATS) -> tuple[float, float]:
    """The median nanoseconds a byte to compress a matrix of random numbers, and to restore it, on one thread.

    Args:
        compression: as in a spec. side: rows and columns of the matrix.
    """
    import torch

    from wanbench.workloads.comm.local import run_replicas
    from wanbench.workloads.compression import registry
    from wanbench.workloads.compression.averaging import Averager

    v = torch.randn(side * side)
    compressor = registry.create(compression)
    assert compressor is not None

    def body(comm: Any) -> list[tuple[float, float]]:
        averager, found = Averager(compressor, comm, v, shapes=((side, side),)), []
        for _ in range(repeats + 1):  # the first is not counted
            began = time.perf_counter()
            exchange = averager.begin(v)
            begun = time.perf_counter()
            exchange.wait()
            found.append((begun - began, time.perf_counter() - begun))
            averager.done(exchange)
        return found[1:]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (times,) = run_replicas(1, body)
    finally:
        torch.set_num_threads(threads)
    nbytes = v.numel() * v.element_size()
    compress, restore = (1e9 * statistics.median(each) / nbytes for each in zip(*times, strict=True))
    return compress, restore


def unpriced_s(cell: TrainingCell) -> float | None:
    """Seconds a step that a setting's compression takes on this host; None if it has none, or if its time is known."""
    compressor = cell.algorithm().compressor
    if compressor is None or compressor.ns_per_byte:
        return None
    each = sum(ns_per_byte(compressor))
    return each / 1e9 * cell.workload.message_bytes / cell.algorithm().period_steps
