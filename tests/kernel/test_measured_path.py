"""From ping to a profile, and from the profile to an emulated network: what is lost on it is what was lost."""

import socket
import time

import pytest
from command_line import as_it_was, wanbench  # noqa: F401
from traffic import MS, PORT, network

from wanbench.harness.emulators.impairments import loss_interval
from wanbench.harness.emulators.plan import build, worker_address
from wanbench.netprofiles import load

LOSS, PINGS, CONFIDENCE = 0.1, 1500, 0.9999
LOST_ROUND_TRIPS = 1 - (1 - LOSS) ** 2


def echo(address):
    """Return what arrives to its sender, until nothing does for 1 s."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, PORT))
        sock.settimeout(3.0)  # until the first one
        while True:
            try:
                data, sender = sock.recvfrom(2048)
            except TimeoutError:
                return
            sock.settimeout(1.0)
            sock.sendto(data, sender)


def pings(address):
    """Return what ping prints of round trips to `echo`."""
    time.sleep(0.2)  # until it listens
    lines = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, PORT))
        sock.settimeout(0.002)
        sent, end = 0, time.monotonic() + 60
        while sent < PINGS or time.monotonic() < end:
            if sent < PINGS:
                sent += 1
                sock.send(sent.to_bytes(4, "big") + time.monotonic_ns().to_bytes(8, "big"))
                end = time.monotonic() + 0.5
            try:
                data = sock.recv(64)
            except TimeoutError:
                continue
            number, at = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:12], "big")
            ms = (time.monotonic_ns() - at) / 1e6
            lines.append(f"64 bytes from {address}: icmp_seq={number} ttl=64 time={ms:.1f} ms")
    share = 100 * (1 - len(lines) / sent)
    counts = f"{sent} packets transmitted, {len(lines)} received, {share:g}% packet loss, time {sent * 2}ms"
    return "\n".join([f"PING {address} ({address}) 56(84) bytes of data.", *lines, "", counts, ""])


def pinged(here):
    echoing = here.run(1, echo, worker_address(1))
    text = here.run(0, pings, worker_address(1)).result()
    echoing.result()
    return text


def lost(text):
    return PINGS - text.count("icmp_seq=")


@pytest.mark.timed
def test_a_path_with_loss_becomes_a_profile_and_a_network_that_lose_as_much(relay_lab, tmp_path):
    low, high = loss_interval(PINGS, LOST_ROUND_TRIPS, 0, CONFIDENCE)
    (tmp_path / "ping.txt").write_text(pinged(relay_lab(network(delay_ms=10, loss=LOSS))))
    result = wanbench("measure", "a,b=ping.txt", "-o", "measured.toml")
    assert result.exit_code == 0, result.stderr
    profile = load("measured.toml")
    one_way = [profile.path(*pair).loss.value for pair in (("a", "b"), ("b", "a"))]
    assert one_way[0] == one_way[1]
    assert 1 - (1 - low / PINGS) ** 0.5 - 1e-6 <= one_way[0] <= 1 - (1 - high / PINGS) ** 0.5 + 1e-6

    emulated = build(profile, ["a", "b"])
    assert abs(emulated.link(0, 1).delay_ns - 10 * MS) < 2 * MS
    again = lost(pinged(relay_lab(emulated)))
    low, high = loss_interval(PINGS, 1 - (1 - one_way[0]) ** 2, 0, CONFIDENCE)
    assert low <= again <= high
