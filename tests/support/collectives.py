"""The collectives that run on real sockets, each as one operation of a rank: what must hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.tensors import SUM
from wanbench.workloads.comm.work import DirectWork

NUMEL = 200_000
Begin = Callable[[DirectComm, torch.Tensor], list[DirectWork]]


@dataclass(frozen=True)
class Collective:
    """One operation in which all ranks take part.

    Attributes:
        begin: issues it, of a vector of this rank.
        frame: kind of the frames that a rank sends first. about: what they say that it does.
        site_of: by rank, its site.
        victim: the rank that fails.
        one_shot_bytes: as for `direct`.
        name: of the collective, as in a spec.
        mesh: over which the victim sends first, and `hears` who gets it.
    """

    begin: Begin
    frame: int
    about: str
    site_of: Sequence[int] = (0, 1, 2)
    victim: int = 2
    one_shot_bytes: int = 0
    name: str = "direct"
    mesh: str = "all"
    hears: int = 0


def all_reduce(comm: DirectComm, vector: torch.Tensor) -> list[DirectWork]:
    return [comm.all_reduce(vector)]


def reduce_scatter(comm: DirectComm, vector: torch.Tensor) -> list[DirectWork]:
    return [comm.reduce_scatter(vector.tensor_split(comm.world_size), SUM)]


def all_gather(comm: DirectComm, vector: torch.Tensor) -> list[DirectWork]:
    return [comm.all_gather(vector, [torch.empty_like(vector) for _ in range(comm.world_size)])]


def messages(comm: DirectComm, vector: torch.Tensor) -> list[DirectWork]:
    peers = [rank for rank in range(comm.world_size) if rank != comm.rank]
    receives = [comm.recv(torch.empty_like(vector), peer) for peer in peers]
    return [comm.send(vector, peer) for peer in peers] + receives


_MEAN = "all_reduce by mean of float32"
_SITES = (0, 0, 1, 1)  # ranks 0 and 2 are leaders
COLLECTIVES = {
    "two-phase all_reduce": Collective(all_reduce, mesh.SCATTER, _MEAN),
    "one-shot all_reduce": Collective(all_reduce, mesh.WHOLE, _MEAN, one_shot_bytes=1 << 30),
    "reduce_scatter": Collective(reduce_scatter, mesh.SCATTER, "reduce_scatter by sum of float32"),
    "all_gather": Collective(all_gather, mesh.SHARE, "all_gather of float32"),
    "ring": Collective(all_reduce, mesh.HOP, _MEAN, name="ring"),
    "messages": Collective(messages, mesh.MESSAGE, "message of float32"),
    "hierarchical, a leader fails": Collective(
        all_reduce, mesh.SCATTER, _MEAN, _SITES, victim=2, name="hierarchical", mesh="leaders"
    ),
    "hierarchical, a member fails": Collective(
        all_reduce, mesh.MESSAGE, _MEAN, _SITES, victim=3, name="hierarchical", mesh="site 1", hears=2
    ),
}
