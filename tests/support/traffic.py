"""Networks for tests, and the traffic on them; the functions run inside workers."""

from __future__ import annotations

import dataclasses
import socket
import time

from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue, worker_address

MS = 1_000_000
PORT = 5000


def network(
    sites=2, *, delay_ms=20.0, jitter_ms=0.0, loss=0.0, up_mbit=None, path_mbit=None, buffer_ms=100, site_of=None
):
    def queue(mbit):
        return UNLIMITED if mbit is None else Queue(mbit * 125e3, int(mbit * 125 * buffer_ms))

    link = Link(int(delay_ms * MS), int(jitter_ms * MS), loss, queue(path_mbit))
    return EmulatedNetwork(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=tuple(range(sites)) if site_of is None else site_of,
        up=(queue(up_mbit),) * sites,
        down=(queue(up_mbit),) * sites,
        local_delay_ns=(0,) * sites,
        links={(a, b): link for a in range(sites) for b in range(sites) if a != b},
    )


def other_path(net, pair, link):
    """Return the network with one directed path replaced."""
    return dataclasses.replace(net, links={**net.links, pair: link})


def receive_udp(address, count, timeout_s):
    """Return (number, one-way delay in ms) of the first `count` packets, or fewer after a pause of `timeout_s`."""
    got = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((address, PORT))
        sock.settimeout(timeout_s)
        while len(got) < count:
            try:
                data = sock.recv(2048)
            except TimeoutError:
                break
            number, sent = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:12], "big")
            got.append((number, (time.monotonic_ns() - sent) / 1e6))
    return got


def send_udp(address, count, nbytes=64, gap_s=0.0):
    time.sleep(0.2)  # until the receiver listens
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in range(count):
            head = number.to_bytes(4, "big") + time.monotonic_ns().to_bytes(8, "big")
            sock.sendto(head + bytes(nbytes - 28 - len(head)), (address, PORT))
            if gap_s:
                time.sleep(gap_s)


def receive_tcp(address, warm_s, seconds):
    """Return the Mbit/s of one connection, measured for `seconds` after `warm_s`."""
    with socket.create_server((address, PORT)) as server:
        connection, _ = server.accept()
    with connection:
        connection.settimeout(10)
        begin = time.monotonic() + warm_s
        total = 0
        while (now := time.monotonic()) < begin + seconds:
            nbytes = len(connection.recv(1 << 16))
            total += nbytes if now >= begin else 0
        return total * 8 / seconds / 1e6


def connect(address):
    """Return a connection, for which the receiver may need up to 30 s."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def send_tcp(address):
    """Send until the receiver closes the connection."""
    with connect(address) as sock:
        try:
            while True:
                sock.sendall(bytes(1 << 16))
        except (ConnectionResetError, BrokenPipeError):
            return


def one_way(lab, source, to, count=40, **how):
    received = lab.run(to, receive_udp, worker_address(to), count, 1.0)
    lab.run(source, send_udp, worker_address(to), count, *how.values()).result()
    return received.result()
