"""torch.distributed's default process group, which a user's own program has formed, as a `Comm`."""

from __future__ import annotations

import atexit
import itertools
import time
from functools import cache

import torch
import torch.distributed as dist

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.gloo import GroupComm

_TAGS = 1 << 20
_count = itertools.count(1)
_LET_GO_S = 0.1


def world() -> GroupComm:
    """The default process group; operations go to it in the order of their calls, among the program's own.

    Every call returns another comm, whose messages cannot be taken for those of the others; all ranks call it equally
    often.

    Raises:
        CommError: there is no group, or its backend for the CPU is not gloo.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise CommError(
            'no process group: call torch.distributed.init_process_group("gloo") first, and start the program with '
            "torchrun or wanbench (one process alone: torchrun --nproc-per-node 1)"
        )
    backends = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
    if backends.get("cpu") != "gloo":
        found = backends.get("cpu") or dist.get_backend()
        raise CommError(f"the process group has backend '{found}', expected gloo: init_process_group(\"gloo\")")
    _sleep_at_exit()
    return GroupComm(dist.group.WORLD, dist.get_rank(), dist.get_world_size(), first_tag=next(_count) * _TAGS)


def copy_from_rank_0(tensors: list[torch.Tensor]) -> None:
    """Give all tensors the values that they have on rank 0, with one broadcast for each of their types.

    All ranks have as many, of the same shapes and types.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.broadcast(flat, src=0)
        ends = list(itertools.accumulate(tensor.numel() for tensor in alike))
        for tensor, part in zip(alike, flat.tensor_split(ends[:-1]), strict=True):
            tensor.copy_(part.view_as(tensor))


@cache
def _sleep_at_exit() -> None:
    """A program that ends within milliseconds of its last operation may abort: pytorch/pytorch#179291."""
    atexit.register(time.sleep, _LET_GO_S)
