"""How a worker joins its group, with the collective of its job."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Sequence

from torch._C._distributed_c10d import FileStore

from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import Comm
from wanbench.workloads.comm.datagram import DatagramComm, Datagrams, bind
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.gloo import GlooComm
from wanbench.workloads.comm.hierarchical import HierarchicalComm, members_of
from wanbench.workloads.comm.regrouping import Regrouping
from wanbench.workloads.comm.ring import RingComm
from wanbench.workloads.loop.job import Job

_FOREVER = -1  # torch removes the file of a store once so many have used it


def join(job: Job, address: str, interface: str) -> Comm:
    """Connect this rank to its peers over the emulated device, with the job's collective.

    An algorithm that needs datagrams uses `direct` and also gets a UDP socket. The socket uses the same port number as
    the TCP listener, so peers already know it.
    """
    if job.world_size == 1:
        return DirectComm(mesh.Mesh(0, 1, {}, 1), timeout_s=job.timeout_s)
    store = FileStore(job.rendezvous, job.world_size)
    if job.collective == "gloo":
        channels, timeout_s = job.channels, job.timeout_s
        return GlooComm(store, job.rank, job.world_size, interface=interface, channels=channels, timeout_s=timeout_s)
    if job.collective == "hierarchical":
        return _hierarchical(job, store, address)
    listener = mesh.listen(address)
    datagrams = algorithms.create(job.kind, job.params).datagrams
    sock = bind(*listener.getsockname()[:2]) if datagrams else None
    connected, addresses = _connect(job, store, listener, "all", range(job.world_size))
    if job.collective == "ring":
        return RingComm(connected, job.ring, timeout_s=job.timeout_s)
    if sock is None:
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)
    token, rate = zlib.crc32(job.rendezvous.encode()), job.datagram_bytes_per_s
    datagram = Datagrams(sock, job.rank, addresses, token=token, bytes_per_s=rate, timeout_s=job.timeout_s)
    return DatagramComm(connected, datagram, timeout_s=job.timeout_s)


def membership(job: Job, address: str) -> Regrouping:
    """Return the membership of a `direct` job whose workers can be lost, and open the port at which it can be called.

    A worker that was started again finds the addresses of the others where it wrote its own.
    """
    assert job.deadline_s is not None, "nobody would notice that a worker is cut off"
    store = FileStore(job.rendezvous, _FOREVER)
    store.set(f"host/{job.rank}", address)
    hosts = [store.get(f"host/{rank}").decode() for rank in range(job.world_size)]

    def first() -> DirectComm:
        connected, _ = _connect(job, store, mesh.listen(address), "all", range(job.world_size))
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)

    def connect(
        listener: socket.socket, members: Sequence[int], addresses: Sequence[tuple[str, int]], token: bytes
    ) -> DirectComm:
        connected = _mesh(job, listener, members, addresses, token=token, timeout_s=job.deadline_s)
        return DirectComm(connected, timeout_s=job.timeout_s, one_shot_bytes=job.one_shot_bytes)

    deadline_s, timeout_s = job.deadline_s, job.timeout_s
    return Regrouping(job.rank, hosts, job.rendezvous, first, connect, deadline_s=deadline_s, timeout_s=timeout_s)


def _hierarchical(job: Job, store: FileStore, address: str) -> HierarchicalComm:
    """Connect to all peers, then to the workers of this site, then the leaders of all sites with each other."""
    site, leaders = members_of(job.site_of, job.rank)
    everyone, _ = _connect(job, store, mesh.listen(address), "all", range(job.world_size))
    inside, _ = _connect(job, store, mesh.listen(address), "site", site)
    across = None
    if job.rank in leaders and len(leaders) > 1:
        connected, _ = _connect(job, store, mesh.listen(address), "leader", leaders)
        across = DirectComm(connected, timeout_s=job.timeout_s)
    return HierarchicalComm(everyone, DirectComm(inside, timeout_s=job.timeout_s), across, timeout_s=job.timeout_s)


def _connect(
    job: Job, store: FileStore, listener: socket.socket, role: str, members: Sequence[int]
) -> tuple[mesh.Mesh, list[tuple[str, int]]]:
    """Connect to the other members, of which this rank is one, and which agree on the role. Return their addresses."""
    host, port = listener.getsockname()[:2]
    store.set(f"{role}/{job.rank}", f"{host}:{port}")
    addresses = []
    for peer in members:
        host, port = store.get(f"{role}/{peer}").decode().split(":")
        addresses.append((host, int(port)))
    return _mesh(job, listener, members, addresses), addresses


def _mesh(
    job: Job,
    listener: socket.socket,
    members: Sequence[int],
    addresses: Sequence[tuple[str, int]],
    *,
    token: bytes = bytes(mesh.TOKEN_BYTES),
    timeout_s: float | None = None,
) -> mesh.Mesh:
    """Connect to the other members, at the pace of the job."""
    return mesh.connect(
        listener,
        members.index(job.rank),
        addresses,
        connections=job.channels,
        timeout_s=job.timeout_s if timeout_s is None else timeout_s,
        paces={index: mesh.Pace(*job.paces[peer]) for index, peer in enumerate(members)} if job.paces else None,
        names=members,
        token=token,
        silence_s=job.deadline_s,
    )
