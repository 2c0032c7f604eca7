"""Half-precision vectors, whose numbers are added up in single precision."""

from __future__ import annotations

from collections.abc import Callable

import torch

from wanbench.workloads.comm.tensors import Reduction
from wanbench.workloads.comm.work import DirectWork


def in_single_precision(
    all_reduce: Callable[[torch.Tensor, Reduction], DirectWork],
    tensor: torch.Tensor,
    reduction: Reduction,
    timeout_s: float,
) -> DirectWork:
    """Reduce a copy in single precision, and round once."""
    work, wide = DirectWork("all_reduce", timeout_s, lambda: inner.late()), tensor.to(torch.float32)

    @torch.inference_mode()
    def round_it(error: str | None) -> None:
        if error is None:
            tensor.copy_(wide)
        work.complete(error)

    inner = all_reduce(wide, reduction)
    inner.then(round_it)
    return work
