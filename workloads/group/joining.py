"""How the ranks of a group find and connect to each other."""

import contextlib
import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256

from torch._C._distributed_c10d import PrefixStore, Store

from wanbench.workloads.comm import hierarchical, mesh, ring
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.windows import connections_that_fill, in_flight_here
from wanbench.workloads.group.settings import Settings

_TOKEN, _ROSTER = "token", "roster"
_LIFE = "TORCHELASTIC_RESTART_COUNT"
_POLL_S = 0.02
_UNKNOWN_RATE = 125e6  # bytes/s of a rank without WAN_PACES


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
    if settings.collective == "ring":
        order = [world.index(member) for member in settings.ring or world if member in world]
        return ring.RingComm(connect("all", range(len(world))), order, timeout_s=timeout_s)
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
    """Connect to the other members, of which this rank is one, and which agree on the role and the most connections.

    Args:
        store, rank, world, settings, timeout_s: as for `join`. Ranks publish there where they listen, and what one
            connection of theirs carries.
    """
    names, index = [world[member] for member in members], members.index(rank)
    paces = {peer: mesh.Pace(*settings.paces[name]) for peer, name in enumerate(names)} if settings.paces else None

    def shared(what: str, value: str) -> list[str]:
        store.set(f"{role}/{what}/{rank}", value)
        return _read_all(store, [f"{role}/{what}/{member}" for member in members], names, timeout_s)

    with mesh.listen(settings.address) as listener:
        host, port = listener.getsockname()[:2]
        texts = [text.split() for text in shared("address", f"{host} {port} {in_flight_here() or math.inf}")]
        addresses, carried = [(host, int(port)) for host, port, _ in texts], [float(text) for *_, text in texts]
        own = settings.streams or _connections(addresses[:index], carried, carried[index], paces or {}, timeout_s)
        connections = max(map(int, shared("connections", str(own))))
        (token,) = _read_all(store, [_TOKEN], world[:1], timeout_s)
        return mesh.connect(
            listener,
            index,
            addresses,
            connections=connections,
            timeout_s=timeout_s,
            paces=paces,
            names=names,
            token=token.encode(),
        )


def _read_all(store: Store, keys: Sequence[str], names: Sequence[int], timeout_s: float) -> list[str]:
    """Read keys, one of each rank. Raises: CommError: names the ranks that have not written theirs in time."""
    try:
        store.wait(list(keys), timedelta(seconds=timeout_s))
    except RuntimeError as error:
        ranks = sorted(name for name, key in zip(names, keys, strict=True) if not store.check([key]))
        raise CommError(f"wan: ranks {ranks} did not join the group within {timeout_s:g} s") from error
    return [store.get(key).decode() for key in keys]


def _connections(
    addresses: Sequence[tuple[str, int]],
    carried: Sequence[float],
    own: float,
    paces: Mapping[int, mesh.Pace],
    timeout_s: float,
) -> int:
    """The number of connections that fill the path to each of these peers. The other ranks look at the other paths.

    Args:
        carried: by rank, the bytes that one of its connections has in flight at most; `own`: of this rank.
    """
    needed, ranks = 1, len(carried)
    # A peer that cannot be reached is named when all connect.
    with contextlib.suppress(OSError):
        for peer, rtt_s in mesh.round_trips_s(addresses, timeout_s):
            pace = paces[peer].together if peer in paces else None
            rate = _UNKNOWN_RATE / (ranks - 1) if pace is None else pace
            needed = max(needed, connections_that_fill(rtt_s, rate, min(own, carried[peer]), ranks))
    return needed
