"""Groups of the backend `wan` over loopback, whose ranks are threads, and what their calls need."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from wanbench.workloads.group.group import WanGroup

T = TypeVar("T")
SUM = dist.ReduceOp.SUM


def on_every_rank(groups: list[WanGroup], body: Callable[[WanGroup], T]) -> list[T]:
    if not groups:
        return []
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(body, groups))


def all_reduce_options(op: Any = SUM) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def rooted(options: Any, root: int, op: Any = SUM, tensor: int = 0) -> Any:
    options.rootRank = root
    if hasattr(options, "rootTensor"):
        options.rootTensor = tensor
    if hasattr(options, "reduceOp"):
        options.reduceOp = op
    return options


def given(rank: int, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The contribution of a rank, which every rank can compute."""
    numbers = torch.randint(1, 100, (numel,), generator=torch.Generator().manual_seed(rank))
    return numbers.to(dtype)


def all_reduce_of(op: Any = SUM, dtype: torch.dtype = torch.float32, numel: int = 8) -> Callable[[WanGroup], Any]:
    return lambda wan: wan.allreduce([torch.ones(numel, dtype=dtype)], all_reduce_options(op))
