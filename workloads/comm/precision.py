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
    give_up: Callable[[str], None],
) -> DirectWork:
    """Reduce a copy in single precision, and round once. `timeout_s`, `give_up`: as in `DirectWork`."""
    wide = tensor.to(torch.float32)
    work = DirectWork("all_reduce", timeout_s, lambda patience_s: inner.late(patience_s), give_up)

    @torch.inference_mode()
    def round_it(error: str | None) -> None:
        if error is None:
            tensor.copy_(wide)
        work.complete(error)

    inner = all_reduce(wide, reduction)
    inner.then(round_it)
    return work
