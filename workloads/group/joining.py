"""How the ranks of a group find and connect to each other."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from wanbench.workloads.comm import connecting, mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.hierarchical import HierarchicalComm, members_of
from wanbench.workloads.group.settings import Settings

_TOKEN = "token"


def join(store: Store, rank: int, world: Sequence[int], settings: Settings, timeout_s: float) -> DirectComm:
    """Connect to all ranks of a group.

    Args:
        store: of this group alone.
        rank: this rank in the group.
        world: by rank in the group, its rank in the whole program, which messages use.
        settings: of this process.
        timeout_s: for connecting, and for each operation.

    Raises:
        CommError: names the ranks that did not connect in time.
    """
    if len(world) == 1:
        return DirectComm(mesh.Mesh(0, 1, {}, 1, names=world), timeout_s=timeout_s)
    if rank == 0:
        store.set(_TOKEN, secrets.token_hex(connecting.TOKEN_BYTES // 2))
    meeting = _Meeting(store, rank, world, settings, timeout_s)
    everyone = meeting.connect("all", range(len(world)))
    if settings.collective == "direct":
        return DirectComm(everyone, timeout_s=timeout_s, one_shot_bytes=settings.one_shot_bytes)
    names = sorted({settings.sites[member] for member in world})
    site, leaders = members_of([names.index(settings.sites[member]) for member in world], rank)
    inside = DirectComm(meeting.connect("site", site), timeout_s=timeout_s)
    across = None
    if rank in leaders and len(leaders) > 1:
        connected = meeting.connect("leaders", leaders)
        across = DirectComm(connected, timeout_s=timeout_s, one_shot_bytes=settings.one_shot_bytes)
    return HierarchicalComm(everyone, inside, across, timeout_s=timeout_s)


class _Meeting:
    """Where ranks publish the addresses at which they listen."""

    def __init__(self, store: Store, rank: int, world: Sequence[int], settings: Settings, timeout_s: float) -> None:
        self._store, self._rank, self._world, self._settings = store, rank, world, settings
        self._timeout_s = timeout_s

    def connect(self, role: str, members: Sequence[int]) -> mesh.Mesh:
        """Connect to the other members, of which this rank is one, and which agree on the role."""
        listener = connecting.listen(self._settings.address)
        host, port = listener.getsockname()[:2]
        try:
            self._store.set(f"{role}/{self._rank}", f"{host}:{port}")
            token, *texts = self._wait_for([_TOKEN, *(f"{role}/{member}" for member in members)])
        except Exception:
            listener.close()
            raise
        addresses = [(host, int(port)) for host, _, port in (text.rpartition(":") for text in texts)]
        paces = self._settings.paces
        return connecting.connect(
            listener,
            members.index(self._rank),
            addresses,
            connections=self._settings.streams,
            timeout_s=self._timeout_s,
            paces={index: mesh.Pace(*paces[self._world[member]]) for index, member in enumerate(members)}
            if paces
            else None,
            names=[self._world[member] for member in members],
            token=token.encode(),
        )

    def _wait_for(self, keys: Sequence[str]) -> list[str]:
        try:
            self._store.wait(list(keys), timedelta(seconds=self._timeout_s))
        except RuntimeError as error:
            absent = [key for key in keys if not self._store.check([key])]
            ranks = sorted({self._world[int(key.rpartition("/")[2])] for key in absent if key != _TOKEN} or {0})
            raise CommError(f"wan: ranks {ranks} did not join the group within {self._timeout_s:g} s") from error
        return [self._store.get(key).decode() for key in keys]
