"""Exchanges on real UDP sockets: without loss everything arrives, and a lost datagram is given up in time."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from wanbench.workloads.comm import datagram
from wanbench.workloads.comm.base import CommError, Terms
from wanbench.workloads.comm.blocks import HEADER, PAYLOAD_BYTES, WIRE_HEADER_BYTES
from wanbench.workloads.comm.datagram import Datagrams, bind
from wanbench.workloads.process.tun import udp_overflows

LOCALHOST, TOKEN = "127.0.0.1", 77
SECOND = 1_000_000_000
PATIENT = Terms(PAYLOAD_BYTES, 30 * SECOND, 20 * SECOND)  # a busy host delays datagrams but loses none
HASTY = Terms(PAYLOAD_BYTES, 30 * SECOND, SECOND // 10)
ELEMENTS = PAYLOAD_BYTES // 4


@pytest.fixture
def group():
    """Yield a factory of groups; close them at the end."""
    made: list[Datagrams] = []

    def make(world_size, bytes_per_s=None):
        sockets = [bind(LOCALHOST) for _ in range(world_size)]
        addresses = [sock.getsockname() for sock in sockets]
        made.extend(
            members := [
                Datagrams(sock, rank, addresses, token=TOKEN, bytes_per_s=bytes_per_s, timeout_s=60.0)
                for rank, sock in enumerate(sockets)
            ]
        )
        return members

    yield make
    for member in made:
        member.close()


@pytest.fixture
def alone():
    """Yield (datagrams of rank 0, socket of rank 1); the test acts as rank 1."""
    sockets = [bind(LOCALHOST) for _ in range(2)]
    addresses = [sock.getsockname() for sock in sockets]
    member = Datagrams(sockets[0], 0, addresses, token=TOKEN, bytes_per_s=None, timeout_s=60.0)
    sockets[1].connect(addresses[0])
    yield member, sockets[1]
    member.close()
    sockets[1].close()


def send(sock, number, index, values, *, token=TOKEN, rank=1):
    sock.send(HEADER.pack(token, number, index, rank) + values.numpy().tobytes())


def vector(src, dst, number, numel):
    return torch.randn(numel, generator=torch.Generator().manual_seed(src * 1000 + dst * 100 + number))


def exchanged(members, number, numel, terms=PATIENT):
    """Send a different vector from each rank to each peer; return (received, arrived, blocks) per rank."""
    ranks = range(len(members))

    def exchange(rank):
        sends = {peer: vector(rank, peer, number, numel) for peer in ranks if peer != rank}
        receives = {peer: torch.full((numel,), torch.nan) for peer in ranks if peer != rank}
        work = members[rank].exchange(sends, receives, terms)
        work.wait()
        return receives, work.arrived, work.blocks

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(exchange, ranks))


@pytest.mark.parametrize("numel", [0, 1, ELEMENTS, 3 * ELEMENTS + 5, 100_000])
@pytest.mark.parametrize("block_bytes", [PAYLOAD_BYTES, 64 << 10])
def test_without_loss_everything_arrives(group, numel, block_bytes):
    members = group(3)
    for number in range(3):
        terms = Terms(block_bytes, PATIENT.deadline_ns, PATIENT.silence_ns)
        for rank, (received, arrived, blocks) in enumerate(exchanged(members, number, numel, terms)):
            assert blocks == (2 * -(-numel // (block_bytes // 4)), 0)
            for peer, found in received.items():
                assert torch.equal(found, vector(peer, rank, number, numel))
                assert arrived[peer] == ([slice(0, numel)] if numel else [])


def test_an_early_datagram_is_kept_for_its_exchange(group):
    first, second = group(2)
    works = []
    for number in range(4):  # rank 0 runs ahead of rank 1
        received = torch.zeros(1000)
        works.append((first.exchange({1: vector(0, 1, number, 1000)}, {1: received}, PATIENT), received))
    time.sleep(0.05)
    for number in range(4):
        received = torch.zeros(1000)
        late = second.exchange({0: vector(1, 0, number, 1000)}, {0: received}, PATIENT)
        late.wait()
        assert late.blocks[1] == 0
        assert torch.equal(received, vector(0, 1, number, 1000))
    for number, (work, received) in enumerate(works):
        work.wait()
        assert torch.equal(received, vector(1, 0, number, 1000))


def test_datagrams_missing_after_silence_are_lost(alone):
    member, peer = alone
    received = torch.zeros(3 * ELEMENTS)
    work = member.exchange({1: torch.ones(8)}, {1: received}, HASTY)
    for index in (0, 2):
        send(peer, 0, index, torch.full((ELEMENTS,), 7.0))
    work.wait()
    assert work.blocks == (3, 1)
    assert work.arrived == {1: [slice(0, ELEMENTS), slice(2 * ELEMENTS, 3 * ELEMENTS)]}
    assert received[:ELEMENTS].eq(7).all()
    assert received[2 * ELEMENTS :].eq(7).all()


def test_a_block_of_several_datagrams_needs_all_of_them(alone):
    member, peer = alone
    terms = Terms(2 * PAYLOAD_BYTES, HASTY.deadline_ns, HASTY.silence_ns)
    work = member.exchange({}, {1: torch.zeros(4 * ELEMENTS)}, terms)
    for index in (0, 2, 3):
        send(peer, 0, index, torch.ones(ELEMENTS))
    work.wait()
    assert (work.blocks, work.arrived) == ((2, 1), {1: [slice(2 * ELEMENTS, 4 * ELEMENTS)]})


def test_a_silent_peer_is_given_up_at_the_deadline_and_not_before(alone):
    member, _ = alone
    began = time.monotonic()
    work = member.exchange({}, {1: torch.zeros(10)}, Terms(PAYLOAD_BYTES, SECOND // 2, SECOND // 100))
    work.wait()
    assert time.monotonic() - began >= 0.5
    assert (work.blocks, work.arrived) == ((1, 1), {1: []})


def test_no_worker_waits_for_a_peer_that_is_already_in_a_later_exchange(alone):
    """The later datagrams show that the peer has sent all datagrams of this exchange."""
    member, peer = alone
    work = member.exchange({}, {1: torch.zeros(10)}, Terms(PAYLOAD_BYTES, 3600 * SECOND, SECOND // 100))
    send(peer, 1, 0, torch.ones(10))
    work.wait()  # not for an hour
    assert work.blocks == (1, 1)
    received = torch.zeros(10)
    following = member.exchange({}, {1: received}, HASTY)
    following.wait()
    assert (following.blocks, float(received.sum())) == ((1, 0), 10.0)


def test_foreign_late_and_duplicate_datagrams_change_nothing(alone):
    member, peer = alone
    received = torch.zeros(2 * ELEMENTS)
    first = member.exchange({}, {1: received}, HASTY)
    send(peer, 0, 0, torch.ones(ELEMENTS))
    first.wait()
    assert first.blocks == (2, 1)
    send(peer, 0, 1, torch.ones(ELEMENTS))  # too late
    send(peer, 1, 0, torch.full((ELEMENTS,), 5.0), token=TOKEN + 1)  # from another group
    send(peer, 1, 0, torch.full((ELEMENTS,), 5.0), rank=9)
    peer.send(b"?")
    send(peer, 1, 0, torch.full((ELEMENTS,), 2.0))
    send(peer, 1, 0, torch.full((ELEMENTS,), 3.0))  # twice
    send(peer, 1, 1, torch.full((ELEMENTS,), 2.0))
    again = torch.zeros(2 * ELEMENTS)
    second = member.exchange({}, {1: again}, PATIENT)
    second.wait()
    assert second.blocks == (2, 0)
    assert again.eq(2).all()
    assert received[ELEMENTS:].eq(0).all()


def test_a_datagram_of_the_wrong_size_is_an_error(alone):
    member, peer = alone
    work = member.exchange({}, {1: torch.zeros(10)}, PATIENT)
    send(peer, 0, 0, torch.ones(11))
    with pytest.raises(CommError) as caught:
        work.wait()
    assert str(caught.value) == "udp: exchange 0 failed: rank 1 sent a datagram of 44 bytes; expected 40"
    with pytest.raises(CommError):
        member.exchange({}, {1: torch.zeros(10)}, PATIENT).wait()


def test_a_worker_sends_no_faster_than_its_rate(alone):
    member, peer = alone
    slow = Datagrams(bind(LOCALHOST), 1, [peer.getsockname()] * 2, token=1, bytes_per_s=150_000.0, timeout_s=60.0)
    try:
        began = time.monotonic()
        work = slow.exchange({0: torch.zeros(50 * ELEMENTS)}, {}, PATIENT)
        work.wait()
        nbytes = 50 * (PAYLOAD_BYTES + WIRE_HEADER_BYTES)
        assert time.monotonic() - began > 0.8 * nbytes / 150_000  # the first few are sent at once
    finally:
        slow.close()
    assert member.bytes_per_s == pytest.approx(
        member.buffer_bytes / datagram._BUFFER_BYTES_PER_DATAGRAM * 1500 / datagram.ABSORBED_S
    )


def test_the_kernel_counts_the_datagrams_that_a_full_buffer_drops():
    small, sender = bind(LOCALHOST), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = udp_overflows()
    for _ in range(100):
        sender.sendto(bytes(1000), small.getsockname())
    assert udp_overflows() > before
    small.close()
    sender.close()


def test_the_error_names_a_port_that_is_in_use():
    taken = bind(LOCALHOST)
    port = taken.getsockname()[1]
    with pytest.raises(CommError, match=f"udp: cannot bind 127.0.0.1:{port}: Address already in use"):
        bind(LOCALHOST, port)
    taken.close()


def test_close_leaves_no_thread_and_no_descriptor():
    def resources():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = resources()
    sock = bind(LOCALHOST)
    member = Datagrams(sock, 0, [sock.getsockname()], token=1, bytes_per_s=None, timeout_s=1.0)
    member.close()
    member.close()
    assert resources() == before
