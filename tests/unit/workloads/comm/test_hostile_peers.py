"""Each collective with a rank that sends what no rank sends: every other rank raises an error that names it, in time.

The hostile rank is raw sockets. It says the wrong thing to one rank alone; the others must learn of it from that one.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations

import pytest
import torch
from collectives import COLLECTIVES, NUMEL, Collective

from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.hierarchical import HierarchicalComm, members_of
from wanbench.workloads.comm.tensors import chunks_of

LOCALHOST = "127.0.0.1"
LIMIT_S, SLACK_S = 0.5, 15.0  # a busy host
ENDED, LIVE, NEVER = 0, 1, 1000  # numbers of an operation before, of the one in progress, and of none
Links = dict[int, dict[int, socket.socket]]


def head(kind: int, nbytes: int, sequence: int = 0, chunk: int = 0, *, last: bool = False, about: str = "") -> bytes:
    return mesh._HEADER.pack(kind, last, len(about), chunk, sequence, nbytes + len(about))


def frame(what: Collective, nbytes: int, sequence: int = LIVE, chunk: int = 0, about: str | None = None) -> bytes:
    """A frame of the collective, which is right if nothing is given but the bytes of the first chunk."""
    about = what.about if about is None else about
    number = 0 if what.frame == mesh.MESSAGE and sequence == LIVE else sequence  # it is the first message
    header = head(what.frame, nbytes, number, chunk, last=what.frame == mesh.SHARE, about=about)
    return header + bytes(nbytes) + about.encode()


# What it says, of a collective and the bytes of the first chunk that it should send. It closes behind "...".
HOSTILE: dict[str, Callable[[Collective, int], bytes]] = {
    "nothing": lambda what, nbytes: b"",
    "nothing ...": lambda what, nbytes: b"",
    "half a header": lambda what, nbytes: frame(what, nbytes)[:9],
    "half a header ...": lambda what, nbytes: frame(what, nbytes)[:9],
    "half a body": lambda what, nbytes: frame(what, nbytes)[: nbytes // 2],
    "half a body ...": lambda what, nbytes: frame(what, nbytes)[: nbytes // 2],
    "a goodbye ...": lambda what, nbytes: head(mesh.LEAVE, 0),
    "an unknown kind": lambda what, nbytes: head(77, 4) + bytes(4),
    "another protocol": lambda what, nbytes: b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "too few bytes": lambda what, nbytes: frame(what, nbytes - 4),
    "another operation": lambda what, nbytes: frame(what, nbytes, about="all_reduce by max of float32"),
    "another type": lambda what, nbytes: frame(what, nbytes, about=what.about.replace("float", "int")),
    "what is no text": lambda what, nbytes: head(what.frame, 0, LIVE, about=4 * " ") + b"\xff\xfe\xfd\xfc",
    "more about it than it sends": lambda what, nbytes: mesh._HEADER.pack(what.frame, False, 99, 0, LIVE, 4) + bytes(4),
    "a chunk that does not exist": lambda what, nbytes: frame(what, nbytes, chunk=999),
    "a frame for an operation that has ended": lambda what, nbytes: frame(what, nbytes, ENDED),
    "a frame for an operation that nobody issued": lambda what, nbytes: frame(what, nbytes, NEVER),
    "a frame twice": lambda what, nbytes: 2 * frame(what, nbytes),
    "the size of a frame that fits nowhere": lambda what, nbytes: head(what.frame, 1 << 60, LIVE),
    "the size of a reason that fits nowhere": lambda what, nbytes: head(mesh.ABORT, 1 << 40),
    "a mean that nobody asked for": lambda what, nbytes: head(mesh.GATHER, 4, NEVER) + bytes(4),
    "the mean of a chunk that does not exist": lambda what, nbytes: head(mesh.GATHER, 4, LIVE, 999) + bytes(4),
    "a reason that is no text": lambda what, nbytes: head(mesh.ABORT, 4) + b"\xff\xfe\xfd\xfc",
    "no reason": lambda what, nbytes: head(mesh.ABORT, 0),
}
# The number of a message is its place, so these are a right message, or one that comes too early.
RIGHT_FOR_MESSAGES = {"a frame for an operation that has ended", "a frame twice"}
CASES = [
    pytest.param(what, says, id=f"{name}: {says}")
    for name, what in COLLECTIVES.items()
    for says in HOSTILE
    if what.frame != mesh.MESSAGE or says not in RIGHT_FOR_MESSAGES
]


def first_chunk(what: Collective) -> int:
    """The bytes of the first chunk of what the hostile rank owes one other."""
    pieces = len(members_of(what.site_of, 0)[1]) if what.frame == mesh.SCATTER else 1
    piece = torch.empty(NUMEL).tensor_split(pieces)[0]
    return 4 * (chunks_of(piece)[0] if what.frame in (mesh.SCATTER, mesh.WHOLE) else piece).numel()


def names(message: str, rank: int) -> bool:
    """Whether a message names a rank, alone or with others."""
    return re.search(rf"ranks? (\d+, )*{rank}\b", message) is not None


class World:
    """The honest ranks of a collective, and the sockets of the hostile one: by mesh, then by rank at the other end."""

    def __init__(self, what: Collective, limit_s: float) -> None:
        self.what, self._limit_s, ranks = what, limit_s, list(range(len(what.site_of)))
        self._meshes = {"all": ranks, "leaders": members_of(what.site_of, 0)[1]}
        self._meshes |= {f"site {site}": [r for r in ranks if what.site_of[r] == site] for site in set(what.site_of)}
        self._links: dict[str, Links] = {name: {rank: {} for rank in ranks} for name in self._meshes}
        for name, members in self._meshes.items():
            for low, high in combinations(members, 2):
                with mesh.listen(LOCALHOST) as listener:
                    self._links[name][low][high] = socket.create_connection(listener.getsockname())
                    self._links[name][high][low], _ = listener.accept()
        self.sockets = {name: links[what.victim] for name, links in self._links.items()}
        self.comms = [self._comm(rank) for rank in ranks if rank != what.victim]

    def _comm(self, rank: int) -> DirectComm:
        if self.what.name == "direct":
            return self._direct("all", rank)
        across = self._direct("leaders", rank) if rank in self._meshes["leaders"] else None
        inside = self._direct(f"site {self.what.site_of[rank]}", rank)
        for comm in filter(None, (inside, across)):
            comm.transfer("nothing", {}, {}).wait()  # an operation that has ended
        return HierarchicalComm(self._mesh("all", rank), inside, across, timeout_s=self._limit_s)

    def _direct(self, name: str, rank: int) -> DirectComm:
        comm = DirectComm(self._mesh(name, rank), timeout_s=self._limit_s, one_shot_bytes=self.what.one_shot_bytes)
        comm.transfer("nothing", {}, {}).wait()
        return comm

    def _mesh(self, name: str, rank: int) -> mesh.Mesh:
        members = self._meshes[name]
        links = {(members.index(peer), 0): sock for peer, sock in self._links[name][rank].items()}
        return mesh.Mesh(members.index(rank), len(members), links, 1, names=members)

    def close(self) -> None:
        for comm in self.comms:
            comm.close()
        for links in self._links.values():
            for sock in (sock for of_rank in links.values() for sock in of_rank.values()):
                sock.close()


@contextmanager
def world(what: Collective, limit_s: float = LIMIT_S) -> Iterator[World]:
    before = resources()
    made = World(what, limit_s)
    try:
        yield made
    finally:
        made.close()
    assert resources() == before, "nothing is left"


def resources() -> tuple[list[str], int]:
    return sorted(thread.name for thread in threading.enumerate()), len(os.listdir("/proc/self/fd"))


def failures(made: World, numel: int, meanwhile: Callable[[], None]) -> list[tuple[str, float]]:
    """The error of each honest rank, and after which time it was raised."""

    def one(comm: DirectComm) -> tuple[str, float]:
        vector, began, error = torch.ones(numel), time.monotonic(), "none"
        try:
            for _ in range(2):  # what is one frame too many can be noticed after the first
                for work in made.what.begin(comm, vector):
                    work.wait()
        except CommError as failed:
            error = str(failed)
        return error, time.monotonic() - began

    with ThreadPoolExecutor(len(made.comms)) as pool:
        outcomes = [pool.submit(one, comm) for comm in made.comms]
        meanwhile()
        return [each.result() for each in outcomes]


@pytest.mark.parametrize(("what", "says"), CASES)
def test_a_rank_that_says_what_is_wrong_is_named_in_time_on_every_other_rank(what, says):
    words = HOSTILE[says](what, first_chunk(what))
    with world(what) as made:
        sock = made.sockets[what.mesh][what.hears]

        def speak() -> None:
            sock.sendall(words)
            if says.endswith("..."):
                sock.shutdown(socket.SHUT_RDWR)

        found = failures(made, NUMEL, speak)
    assert all(names(message, what.victim) for message, _ in found), found
    assert max(seconds for _, seconds in found) < LIMIT_S + SLACK_S


def test_a_rank_that_sends_what_is_right_but_reads_nothing_is_named():
    what, numel = COLLECTIVES["all_gather"], 2_500_000  # more than the sockets hold
    with world(what, limit_s=3.0) as made:

        def speak() -> None:
            for sock in made.sockets["all"].values():
                sock.sendall(frame(what, 4 * numel))

        found = failures(made, numel, speak)
    assert all("it waits for rank 2" in message for message, _ in found), found


@pytest.mark.parametrize("seed", range(10))
def test_whatever_a_hostile_rank_says_it_is_named(seed):
    what, chance = COLLECTIVES["two-phase all_reduce"], random.Random(seed)
    kind = chance.choice([mesh.SCATTER, mesh.GATHER, mesh.MESSAGE, mesh.SHARE, mesh.WHOLE, mesh.LEAVE, 200])
    sequence, chunk = (chance.choice([0, 1, 2, 1 << 31]) for _ in range(2))
    words = head(kind, chance.choice([0, 4, 1000, 1 << 63]), sequence, chunk) + chance.randbytes(1000)
    with world(what) as made:
        found = failures(made, 1000, lambda: made.sockets["all"][0].sendall(words))
    assert all(names(message, 2) for message, _ in found), found
