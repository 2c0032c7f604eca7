"""How the ranks of a group find and connect to each other."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from torch._C._distributed_c10d import PrefixStore, Store

from wanbench.workloads.comm import hierarchical, mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.group.settings import Settings

_TOKEN, _ROSTER = "token", "roster"
_LIFE = "TORCHELASTIC_RESTART_COUNT"
_POLL_S = 0.02


def agreed(store: Store, rank: int, world: Sequence[int], timeout_s: float) -> Store:
    """Agree with all ranks of a group on who they are; return a store that no earlier life of the group has used.

    A store can outlive its group: after a restart, torchrun's holds what the first life has written. So each process
    draws a word. Rank 0 publishes all words together, and a process that finds its own among them says so. A roster
    that all have confirmed is of this life, for the dead confirm nothing. Of two processes with one rank, the one that
    was restarted more often goes on.

    Args:
        store, rank, world, timeout_s: as for `join`.

    Raises:
        CommError: names the ranks that were not there in time, or another process has this rank.
    """
    if len(world) == 1:
        return store
    own = f"{os.environ.get(_LIFE, '0'):0>6}-{secrets.token_hex(8)}"
    words, deadline = [f"word/{member}" for member in range(len(world))], time.monotonic() + timeout_s
    store.set(words[rank], own)
    while True:
        if store.get(words[rank]).decode() > own:
            raise CommError(f"wan: another process has joined the group as rank {world[rank]} after this one")
        store.set(words[rank], own)
        if rank == 0 and store.check(words):
            store.set(_ROSTER, " ".join(word.decode() for word in store.multi_get(words)))
        roster = store.get(_ROSTER) if store.check([_ROSTER]) else b""
        life, confirms = sha256(roster).hexdigest(), own.encode() in roster.split()
        expected = [f"{life}/{member}" for member in range(len(world))] if confirms else words
        if confirms:
            store.set(expected[rank], "")
            if store.check(expected):
                return PrefixStore(life, store)
        if time.monotonic() > deadline:
            absent = [name for name, key in zip(world, expected, strict=True) if not store.check([key])] or world[:1]
            raise CommError(f"wan: ranks {list(absent)} did not join the group within {timeout_s:g} s")
        time.sleep(_POLL_S)


def join(store: Store, rank: int, world: Sequence[int], settings: Settings, timeout_s: float) -> DirectComm:
    """Connect to all ranks of a group.

    Args:
        store: of this life of this group alone; see `agreed`.
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
        store.set(_TOKEN, secrets.token_hex(mesh.TOKEN_BYTES // 2))
    connect, one_shot_bytes = _Meeting(store, rank, world, settings, timeout_s).connect, settings.one_shot_bytes
    if settings.collective == "direct":
        return DirectComm(connect("all", range(len(world))), timeout_s=timeout_s, one_shot_bytes=one_shot_bytes)
    sites = [settings.sites[member] for member in world]
    return hierarchical.form(connect, sites, rank, timeout_s=timeout_s, one_shot_bytes=one_shot_bytes)


class _Meeting:
    """Where ranks publish the addresses at which they listen."""

    def __init__(self, store: Store, rank: int, world: Sequence[int], settings: Settings, timeout_s: float) -> None:
        self._store, self._rank, self._world, self._settings = store, rank, world, settings
        self._timeout_s = timeout_s

    def connect(self, role: str, members: Sequence[int]) -> mesh.Mesh:
        """Connect to the other members, of which this rank is one, and which agree on the role."""
        listener = mesh.listen(self._settings.address)
        host, port = listener.getsockname()[:2]
        try:
            self._store.set(f"{role}/{self._rank}", f"{host}:{port}")
            token, *texts = self._wait_for([_TOKEN, *(f"{role}/{member}" for member in members)])
        except Exception:
            listener.close()
            raise
        addresses = [(host, int(port)) for host, _, port in (text.rpartition(":") for text in texts)]
        names = [self._world[member] for member in members]
        paces = self._settings.paces
        return mesh.connect(
            listener,
            members.index(self._rank),
            addresses,
            connections=self._settings.streams,
            timeout_s=self._timeout_s,
            paces={index: mesh.Pace(*paces[name]) for index, name in enumerate(names)} if paces else None,
            names=names,
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
