"""Segments on the relay, with real TCP and UDP: whatever it cuts, the receiver's kernel accepts every byte."""

import hashlib
import random
import socket
import time

import pytest
from traffic import MS, PORT, connect, network, other_path

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.plan import UNLIMITED, Link, Queue, worker_address
from wanbench.workloads.process import probing
from wanbench.workloads.process.tun import tcp_counters

NBYTES = 6_000_000


def receive_all(address):
    """Return the digest of one connection's bytes."""
    digest = hashlib.sha256()
    with socket.create_server((address, PORT)) as server:
        connection, _ = server.accept()
    with connection:
        connection.settimeout(60)
        while data := connection.recv(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def send_all(address, seed):
    """Send random bytes. Return their digest, and what TCP counted on their way."""
    data = random.Random(seed).randbytes(NBYTES)
    before = tcp_counters()
    with connect(address) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)  # until the receiver has closed the connection
    return hashlib.sha256(data).hexdigest(), {name: count - before[name] for name, count in tcp_counters().items()}


def transfer(lab, during=lambda: None):
    """Send bytes from worker 0 to worker 1. Return the sender's counters."""
    received = lab.run(1, receive_all, worker_address(1))
    sent = lab.run(0, send_all, worker_address(1), 7)
    while not sent.done():
        during()
    digest, counters = sent.result()
    assert received.result() == digest
    return counters


def test_segments_pass_whole_on_a_fast_path(relay_lab):
    here = relay_lab(network(delay_ms=1))
    assert transfer(here)["RetransSegs"] == 0
    stats = here.emulator.stats()
    assert stats.offload
    assert stats.packets > 3 * stats.segments
    assert set(stats.drops.values()) == {0}


@pytest.mark.parametrize("mbit", [30, 200, 1000])
def test_segments_are_cut_to_the_rate_of_their_path(relay_lab, mbit):
    """At 30 Mbit/s, 0.25 ms is less than a packet."""
    here = relay_lab(network(delay_ms=1, path_mbit=mbit, buffer_ms=2000))
    assert transfer(here)["RetransSegs"] == 0
    (path,) = (path for path in here.emulator.stats().paths if path["src"] == "s0")
    assert path["packets"] >= NBYTES // 1448
    assert path["bytes"] == pytest.approx(NBYTES * 1500 / 1448, rel=0.01), "every packet counts with its headers"


@pytest.mark.parametrize(
    "how", [{"loss": 0.02}, {"path_mbit": 400, "buffer_ms": 1}, {"jitter_ms": 1.0, "delay_ms": 5, "loss": 0.005}]
)
def test_tcp_repairs_what_loses_packets_in_the_middle_of_segments(relay_lab, how):
    here = relay_lab(network(**{"delay_ms": 1, **how}))
    counters, stats = transfer(here), here.emulator.stats()
    assert counters["RetransSegs"] > 0
    lost = stats.drops["loss"] + stats.drops["path"]
    assert 0 < lost < 0.1 * stats.packets
    assert sum(count for cause, count in stats.drops.items() if cause not in ("loss", "path")) == 0


def test_changes_of_the_network_neither_lose_nor_reorder_segments(relay_lab):
    """A fast retransmission would be the answer to a loss or to a reordering."""
    net = network(delay_ms=5, path_mbit=500, buffer_ms=4000)
    values = [(5, 0, 2000), (8, 1, 100), (1, 0, 500), (6, 2, 1000), (5, 0, None)]
    links = [
        Link(delay * MS, jitter * MS, 0.0, UNLIMITED if mbit is None else Queue(mbit * 125e3, 10**9))
        for delay, jitter, mbit in values
    ]
    here, step = relay_lab(net), 0

    def change():
        nonlocal step
        here.emulator.update(other_path(net, (0, 1), links[step % len(links)]))
        step += 1
        time.sleep(0.005)

    for _ in range(3):
        counters = transfer(here, change)
        assert counters["TCPFastRetrans"] == counters["TCPSACKReorder"] == 0
    assert step > 10
    assert set(here.emulator.stats().drops.values()) == {0}


def send_segments(address, segments):
    train = {"start_ns": 0, "packets": 40 * segments, "segment": 40, "bytes": 1500, "burst": 40, "spacing_ns": MS}
    probing.probe_send(worker_address(0), [address], 1, [train])


def receive_segments(expect, seconds):
    until_ns = time.monotonic_ns() + int(seconds * 1e9)
    return probing.probe_receive(probing._listener, 1, expect, until_ns)["segments"]


@pytest.mark.parametrize("mbit", [None, 400], ids=["whole", "cut"])
def test_udp_datagrams_of_a_segment_all_arrive(relay_lab, mbit):
    here = relay_lab(network(delay_ms=1, path_mbit=mbit, buffer_ms=1000))
    port = here.run(1, probing.handle, {"role": "listen", "address": worker_address(1)}).result()["port"]
    received = here.run(1, receive_segments, 400, 5)
    here.run(0, send_segments, (worker_address(1), port), 10).result()
    assert [packets for *_, packets, _ in received.result()] == [40] * 10
    stats = here.emulator.stats()
    assert (stats.packets, stats.bytes) == (400, 400 * 1500)
    assert stats.segments == (10 if mbit is None else 50), "8 packets last 0.25 ms at 400 Mbit/s"


def test_without_offload_the_same_bytes_pass_packet_by_packet(relay_lab, monkeypatch):
    monkeypatch.setenv("WANBENCH_OFFLOAD", "off")
    here = relay_lab(network(delay_ms=1, path_mbit=200, buffer_ms=2000))
    assert transfer(here)["RetransSegs"] == 0
    stats = here.emulator.stats()
    assert not stats.offload
    assert stats.packets == stats.segments >= NBYTES // 1448


def test_devices_with_and_without_offload_do_not_mix(relay_lab, monkeypatch):
    here = relay_lab(network())
    monkeypatch.setenv("WANBENCH_OFFLOAD", "off")
    with pytest.raises(EmulatorError, match="attach: the device of worker 1 has no segmentation offload"):
        here.replace(1)
