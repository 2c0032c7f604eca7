"""torch.distributed's default process group, formed by the user's program, as a `Comm`."""

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
_EXIT_DELAY_S = 0.1


def world() -> GroupComm:
    """Return a comm for the default process group. Its operations join the program's own in the order of the calls.

    Every call returns a new comm, whose messages cannot be confused with those of the others. All ranks must call it
    the same number of times.

    Raises:
        CommError: there is no group, or its backend for the CPU is neither gloo nor wan.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise CommError(
            'no process group: call torch.distributed.init_process_group("gloo") first, and start the program with '
            "torchrun or wanbench (one process alone: torchrun --nproc-per-node 1)"
        )
    backends = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
    if backends.get("cpu") not in ("gloo", "wan"):
        found = backends.get("cpu") or dist.get_backend()
        raise CommError(f"the process group has backend '{found}'; expected gloo or wan: init_process_group(\"gloo\")")
    _sleep_at_exit()
    return GroupComm(dist.group.WORLD, dist.get_rank(), dist.get_world_size(), first_tag=next(_count) * _TAGS)


def copy_from_rank_0(tensors: list[torch.Tensor]) -> None:
    """Copy the values of all tensors from rank 0, with one broadcast per type.

    All ranks must pass the same number of tensors, with the same shapes and types.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same_type = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same_type])
        dist.broadcast(flat, src=0)
        ends = list(itertools.accumulate(tensor.numel() for tensor in same_type))
        for tensor, part in zip(same_type, flat.tensor_split(ends[:-1]), strict=True):
            tensor.copy_(part.view_as(tensor))


@cache
def _sleep_at_exit() -> None:
    """Sleep before exit: a program can abort if it ends milliseconds after an operation (pytorch/pytorch#179291)."""
    atexit.register(time.sleep, _EXIT_DELAY_S)
