"""torch.distributed's gloo on real sockets, with an explicit number of channels.

gloo runs two operations of a context at a time. If an algorithm keeps more in flight, gloo silently serialises them. A
channel is one gloo context with its own TCP connections and its own two threads. If the device is repeated, gloo
assigns operations to the channels in turn.

`formed` is about a group that the user's own program has formed, whose backend can also be `wan`.
"""

import atexit
import itertools
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions, AllToAllOptions, Store
from torch._C._distributed_c10d import Work as TorchWork
from torch.distributed import ProcessGroupGloo

from wanbench.workloads.comm.base import CommError, Vector

THREADS_PER_CHANNEL = 2


class GlooWork:
    """A gloo operation in progress."""

    def __init__(self, work: TorchWork, name: str, scale: tuple[torch.Tensor, float] | None = None) -> None:
        self._work, self._name, self._scale = work, name, scale
        self._finished = False

    def done(self) -> bool:
        """True for a finished collective. gloo's sends and receives cannot be polled: False until `wait` returns."""
        return self._finished or bool(self._work.is_completed())

    def wait(self) -> None:
        """Block until finished. Raises: CommError if a peer is gone or the group's timeout has passed."""
        if self._finished:
            return
        try:
            self._work.wait()
        except RuntimeError as error:
            raise CommError(f"gloo: {self._name} failed: {str(error).splitlines()[0]}") from error
        if self._scale is not None:
            tensor, factor = self._scale
            tensor.mul_(factor)
        self._finished = True


class GroupComm:
    """The operations of a gloo process group.

    Args:
        group: the group, or one of its backends.
        rank: this worker's rank. world_size: number of workers.
        first_tag: tag of the first message between two ranks; only this comm uses the tags from there on.
    """

    def __init__(self, group: Any, rank: int, world_size: int, *, first_tag: int = 0) -> None:
        self.rank, self.world_size, self._group = rank, world_size, group
        self._sent = [itertools.count(first_tag) for _ in range(world_size)]
        self._received = [itertools.count(first_tag) for _ in range(world_size)]

    def all_reduce(self, vector: Vector) -> GlooWork:
        """Compute the mean over all ranks, in place, with gloo's ring of at least 2(N-1) rounds."""
        tensor = cast(torch.Tensor, vector)
        work = self._group.allreduce([tensor], AllreduceOptions())  # by default a sum
        return GlooWork(work, "all_reduce", (tensor, 1.0 / self.world_size))

    def all_gather(self, vector: Vector, parts: Sequence[Vector]) -> GlooWork:
        """Gather the vectors of all ranks, with gloo's ring of N-1 rounds."""
        into = cast(list[torch.Tensor], list(parts))
        return GlooWork(self._group.allgather([into], [vector], AllgatherOptions()), "all_gather")

    def send(self, vector: Vector, dst: int) -> GlooWork:
        """Send a copy; messages between two ranks keep their order."""
        tensor = cast(torch.Tensor, vector).clone()
        work = GlooWork(self._group.send([tensor], dst, next(self._sent[dst])), f"send to rank {dst}")
        work.payload = tensor  # type: ignore[attr-defined]  # gloo reads it until the send is done
        return work

    def recv(self, vector: Vector, src: int) -> GlooWork:
        """Receive the next message from `src` into `vector`."""
        return GlooWork(self._group.recv([vector], src, next(self._received[src])), f"recv from rank {src}")

    def close(self) -> None:
        """Release nothing: the group belongs to the program."""


class GlooComm(GroupComm):
    """A separate gloo process group on one network interface.

    Args:
        store: a rendezvous that does not cross the emulated network.
        rank: this worker's rank. world_size: number of workers.
        interface: name of the emulated device, such as "wan0".
        channels: number of gloo contexts; 2 operations run on each at a time.
        timeout_s: an operation that takes longer fails, and so does the group.
    """

    def __init__(
        self, store: Store, rank: int, world_size: int, *, interface: str, channels: int, timeout_s: float
    ) -> None:
        # torch's type stubs lack the options and the operations of a single backend.
        gloo: Any = ProcessGroupGloo
        options = gloo._Options()
        options._devices = [_device(interface) for _ in range(channels)]
        options._threads = THREADS_PER_CHANNEL * channels
        options._timeout = timedelta(seconds=timeout_s)
        try:
            group = gloo(store, rank, world_size, options)
            _connect(group, world_size, channels)
        except RuntimeError as error:
            raise CommError(f"gloo: forming the group of {world_size} failed: {str(error).splitlines()[0]}") from error
        super().__init__(group, rank, world_size)

    def close(self) -> None:
        """Close the group's connections."""
        self._group.shutdown()


def _device(interface: str) -> Any:
    """Return a device whose connections open when they are first used, if this version of torch has such devices."""
    gloo: Any = ProcessGroupGloo
    try:
        return gloo.create_device(interface=interface, lazy_init=True)
    except TypeError:
        return gloo.create_device(interface=interface)


def _connect(group: Any, world_size: int, channels: int) -> None:
    """Open the connections of all channels at the same time, by an exchange between all pairs on each channel.

    gloo itself opens them one after the other: those of 11 channels between 4 workers take 9 s at 250 ms. Raises:
    RuntimeError.
    """
    exchanges = []
    for _ in range(channels):  # gloo assigns them to the channels in turn
        sent, received = torch.zeros(world_size), torch.zeros(world_size)  # gloo uses both until the end
        exchanges.append((group.alltoall_base(received, sent, [], [], AllToAllOptions()), sent, received))
    for work, *_ in exchanges:
        work.wait()


_TAGS = 1 << 20
_count = itertools.count(1)
_EXIT_DELAY_S = 0.1


def formed(group: dist.ProcessGroup | None = None) -> GroupComm:
    """Return a comm for a process group, by default the program's default one.

    Its operations join the program's own in the order of the calls. Every call returns a new comm, whose messages
    cannot be confused with those of the others. All ranks of the group must call it the same number of times.

    Raises:
        CommError: there is no group, or its backend for the CPU is neither gloo nor wan.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise CommError(
            'no process group: call torch.distributed.init_process_group("gloo") first, and start the program with '
            "torchrun or wanbench (one process alone: torchrun --nproc-per-node 1)"
        )
    backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    if backends.get("cpu") not in ("gloo", "wan"):
        backend = backends.get("cpu") or dist.get_backend(group)
        raise CommError(
            f"the process group has backend '{backend}'; expected gloo or wan: init_process_group(\"gloo\")"
        )
    _sleep_at_exit()
    group = group or dist.group.WORLD
    return GroupComm(group, dist.get_rank(group), dist.get_world_size(group), first_tag=next(_count) * _TAGS)


def copy_from_rank_0(tensors: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Copy the values of all tensors from rank 0 of the group, with one broadcast per type.

    All ranks must pass the same number of tensors, with the same shapes and types.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same_type = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same_type])
        dist.broadcast(flat, group=group, group_src=0)
        for tensor, part in zip(same_type, torch.split(flat, [tensor.numel() for tensor in same_type]), strict=True):
            tensor.copy_(part.view_as(tensor))


@cache
def _sleep_at_exit() -> None:
    """Sleep before exit: a program can abort if it ends milliseconds after an operation (pytorch/pytorch#179291)."""
    atexit.register(time.sleep, _EXIT_DELAY_S)
