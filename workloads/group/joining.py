"""How the ranks of a group find and connect to each other."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
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
    connect, one_shot_bytes = partial(_connect, store, rank, world, settings, timeout_s), settings.one_shot_bytes
    if settings.collective == "direct":
        return DirectComm(connect("all", range(len(world))), timeout_s=timeout_s, one_shot_bytes=one_shot_bytes)
    sites = [settings.sites[member] for member in world]
    return hierarchical.form(connect, sites, rank, timeout_s=timeout_s, one_shot_bytes=one_shot_bytes)


def _connect(
    store: Store,
    rank: int,
    world: Sequence[int],
    settings: Settings,
    timeout_s: float,
    role: str,
    members: Sequence[int],
) -> mesh.Mesh:
    """Connect to the other members, of which this rank is one, and which agree on the role.

    Args:
        store, rank, world, settings, timeout_s: as for `join`. Ranks publish there at which address they listen.
    """
    with mesh.listen(settings.address) as listener:
        host, port = listener.getsockname()[:2]
        store.set(f"{role}/{rank}", f"{host}:{port}")
        keys = [_TOKEN, *(f"{role}/{member}" for member in members)]
        try:
            store.wait(keys, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            absent = [key for key in keys if not store.check([key])]
            ranks = sorted({world[int(key.rpartition("/")[2])] for key in absent if key != _TOKEN} or {0})
            raise CommError(f"wan: ranks {ranks} did not join the group within {timeout_s:g} s") from error
        token, *texts = [store.get(key).decode() for key in keys]
        addresses = [(host, int(port)) for host, _, port in (text.rpartition(":") for text in texts)]
        names = [world[member] for member in members]
        paces = settings.paces
        return mesh.connect(
            listener,
            members.index(rank),
            addresses,
            connections=settings.streams,
            timeout_s=timeout_s,
            paces={index: mesh.Pace(*paces[name]) for index, name in enumerate(names)} if paces else None,
            names=names,
            token=token.encode(),
        )
