"""Segments in the relay: what passes together is what its packets would be, one by one."""

import dataclasses
import random
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.emulators.test_relay_model import FOREVER, MS, address, network, other_path, switch_of
from wanbench.harness.emulators.plan import Queue
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD, VIRTIO_BYTES, Segment
from wanbench.harness.emulators.relay.switch import TailDrop

HEADERS = 52  # IPv4, and TCP with timestamps
FIN, PSH, ACK, CWR = 0x01, 0x08, 0x10, 0x80


def ones_sum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data + bytes(len(data) % 2)[: len(data) % 2]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def pseudo_sum(protocol, nbytes, to):
    return ones_sum(address(0) + address(to) + struct.pack(">HH", protocol, nbytes))


def ip_header(transport_bytes, protocol, to, ident=7):
    fields = (0x45, 0, 20 + transport_bytes, ident, 0x4000, 64, protocol)
    ip = bytearray(struct.pack(">BBHHHBBH4s4s", *fields, 0, address(0), address(to)))
    struct.pack_into(">H", ip, 10, ~ones_sum(bytes(ip)) & 0xFFFF)
    return bytes(ip)


def tcp(payload, size, to=1, flags=ACK, sequence=1000, ident=7):
    """A TCP segment as a kernel hands it to a device with offload."""
    transport = 32 + len(payload)
    ip = ip_header(transport, 6, to, ident)
    head = struct.pack(">HHIIBBHHH", 5000, 5001, sequence, 1, 8 << 4, flags, 500, pseudo_sum(6, transport, to), 0)
    virtio = struct.pack("=BBHHHH", 1, 1, HEADERS, size, 20, 16)
    return virtio + ip + head + bytes(12) + payload


def udp(payload, size, to=1):
    transport = 8 + len(payload)
    ip = ip_header(transport, 17, to)
    head = struct.pack(">HHHH", 5000, 5001, transport, pseudo_sum(17, transport, to))
    return struct.pack("=BBHHHH", 1, 5, 28, size, 20, 6) + ip + head + payload


def parsed(segment):
    """The fields of a piece that a receiver checks."""
    ip = segment.data[VIRTIO_BYTES:]
    flags, kind, _, size, _, _ = struct.unpack_from("=BBHHHH", segment.data)
    assert ones_sum(ip[:20]) == 0xFFFF, "the checksum of the IP header is right"
    assert struct.unpack_from(">H", ip, 2)[0] == len(ip)
    protocol = ip[9]
    check = struct.unpack_from(">H", ip, 36 if protocol == 6 else 26)[0]
    assert check == pseudo_sum(protocol, len(ip) - 20, 1), "the kernel completes this sum"
    assert flags == 1
    assert (kind == 0) == (size == 0) == (segment.packets == 1)
    return ip


PAYLOAD = bytes(range(256)) * 20  # 5120 bytes: 3 packets of 1448, and 776


def test_a_segment_counts_the_headers_of_all_its_packets():
    segment = Segment(tcp(PAYLOAD, 1448), None, 0)
    assert (segment.packets, segment.nbytes) == (4, len(PAYLOAD) + 4 * HEADERS)
    assert (segment.head, segment.tail) == (1500, 776 + HEADERS)


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (0, 3), (1, 3), (3, 4), (1, 4), (2, 3)])
def test_a_cut_tcp_segment_is_what_the_kernel_would_have_sent(begin, end):
    whole = Segment(tcp(PAYLOAD, 1448, flags=ACK | PSH | FIN | CWR, sequence=2**32 - 1500, ident=2**16 - 1), None, 0)
    ip = parsed(whole.part(begin, end, 0, 0))
    assert ip[HEADERS:] == PAYLOAD[begin * 1448 : end * 1448]
    assert struct.unpack_from(">H", ip, 4)[0] == (2**16 - 1 + begin) % 2**16
    assert struct.unpack_from(">I", ip, 24)[0] == (2**32 - 1500 + begin * 1448) % 2**32
    assert bool(ip[33] & CWR) == (begin == 0)
    assert bool(ip[33] & FIN) == bool(ip[33] & PSH) == (end == 4)
    assert ip[33] & ACK


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 3), (3, 4)])
def test_cut_udp_datagrams_keep_their_lengths(begin, end):
    ip = parsed(Segment(udp(PAYLOAD, 1448), None, 0).part(begin, end, 0, 0))
    assert struct.unpack_from(">H", ip, 24)[0] == len(ip) - 20
    assert ip[28:] == PAYLOAD[begin * 1448 : end * 1448]


def test_the_longest_segment_is_passed_on_unchanged_on_a_fast_path():
    data = tcp(bytes(65_535 - HEADERS), 1448)
    switch = switch_of(network(path=Queue(1.25e9, 10**9)))
    switch.accept(data, switch.ports[0], 0)
    (segment,) = switch.release(FOREVER, 10)
    assert segment.data is data


# No buffer ends exactly at a packet, where rounding decides.
queues = st.builds(Queue, st.floats(1e5, 1e8), st.integers(1500, 40_000).map(lambda nbytes: nbytes + 0.5))
bursts = st.lists(st.tuples(st.integers(0, 20 * MS), st.integers(1, 20_000)), min_size=1, max_size=12)


def pass_both(one_after_another, segment):
    first, second = one_after_another
    return [piece for sent in first.through(segment) for piece in second.through(sent)]


@given(queues, queues, bursts)
def test_two_queues_treat_a_segment_as_its_packets(first, second, sent):
    """The oracle sends every packet alone. Both have the same losses, and the same time of the last packet."""
    together, alone = [TailDrop(first), TailDrop(second)], [TailDrop(first), TailDrop(second)]
    for number, (now, nbytes) in enumerate(sorted(sent)):
        whole = Segment(tcp(bytes(nbytes), 1448, sequence=number * 100_000), None, float(now))
        singles = [whole.part(index, index + 1, float(now), float(now)) for index in range(whole.packets)]
        by_segment = pass_both(together, whole)
        by_packet = [piece for single in singles for piece in pass_both(alone, single)]
        assert sum(piece.packets for piece in by_segment) == len(by_packet)
        assert [piece.last for piece in by_segment][-1:] == pytest.approx([piece.last for piece in by_packet][-1:])
        assert [queue.drops for queue in together] == [queue.drops for queue in alone]


def test_a_full_buffer_in_the_middle_of_a_segment_drops_single_packets():
    switch = switch_of(network(path=Queue(1e9, 3500)))
    switch.accept(tcp(PAYLOAD, 1448), switch.ports[0], 0)
    (first,) = switch.release(FOREVER, 10)
    assert (first.packets, switch.drops()["path"]) == (2, 2)
    assert parsed(first)[HEADERS:] == PAYLOAD[: 2 * 1448]


def test_a_full_down_queue_drops_from_every_source_as_it_drops_single_packets():
    """Two sites send segments and one sends single packets, together 1.2 times what the queue carries."""
    mbit, per_segment = 125_000, 20
    net = network(4, up=Queue(500 * mbit, 10**9), down=Queue(1000 * mbit, 10_000 * 125))
    segment_ns = per_segment * 1500 / (450 * mbit) * 1e9

    def delivered(together):
        switch, arrived = switch_of(net), [0, 0, 0]
        phase = random.Random(1).random
        sent = [((turn + phase()) * segment_ns, source, per_segment) for turn in range(1500) for source in (0, 1)]
        sent += [((turn + phase()) * segment_ns / 12, 2, 1) for turn in range(1500 * 12)]
        for now, source, packets in sorted(sent):
            data = tcp(bytes(1448 * packets), 1448, to=3, sequence=source * 10**9)
            whole = Segment(data, None, now)
            for piece in [whole] if together else whole.chunks(1):
                switch.accept(piece.data, switch.ports[source], now)
        for segment in switch.release(FOREVER, 10**6):
            arrived[struct.unpack_from(">I", segment.data, VIRTIO_BYTES + 24)[0] // 10**9] += segment.packets
        return [30_000 - arrived[0], 30_000 - arrived[1], 18_000 - arrived[2]]

    dropped, alone = delivered(together=True), delivered(together=False)
    assert min(alone) > 300
    assert dropped == pytest.approx(alone, rel=0.05)


def test_packets_are_lost_one_by_one():
    switch = switch_of(network(loss=0.1))
    segments = 400
    for _ in range(segments):
        switch.accept(tcp(PAYLOAD, 1448), switch.ports[0], 0)
    pieces = switch.release(FOREVER, 10_000)
    lost = switch.drops()["loss"]
    assert sum(piece.packets for piece in pieces) + lost == 4 * segments
    assert 120 < lost < 200, "10 % of 1600 packets, within 3.3 standard deviations"
    assert {piece.packets for piece in pieces} == {1, 2, 3, 4}


def test_loss_hits_the_same_packets_whatever_their_segments():
    """A path loses its 3rd and its 17th packet, not its 3rd and its 17th segment."""

    def lost_packets(per_segment):
        switch, lost, sent = switch_of(network(loss=0.2), seed=5), [], 0
        for _ in range(240 // per_segment):
            switch.accept(tcp(bytes(1448 * per_segment), 1448, sequence=sent * 1448), switch.ports[0], 0)
            sent += per_segment
        arrived = set()
        for piece in switch.release(FOREVER, 10_000):
            begin = struct.unpack_from(">I", piece.data, VIRTIO_BYTES + 24)[0] // 1448
            arrived |= set(range(begin, begin + piece.packets))
        lost = set(range(240)) - arrived
        assert lost
        return lost

    assert lost_packets(1) == lost_packets(4) == lost_packets(40)


@pytest.mark.parametrize(
    ("mbit", "rtt_ms", "nbytes"),
    [(5, 20, 156.25), (100, 20, 3125), (1000, 10, 31_250), (1000, 50, 62_500), (1000, 300, 69_000)],
)
def test_a_segment_lasts_at_most_a_hundredth_of_the_round_trip(mbit, rtt_ms, nbytes):
    """Within 0.25 and 1 ms, and 64 KB."""
    net = network(delay_ms=rtt_ms / 2, up=Queue(mbit * 125_000, 10**9))
    assert net.longest_segment(0, 1) == pytest.approx(nbytes)


@pytest.mark.parametrize(("mbit", "sizes"), [(5, [1] * 40), (100, [2] * 20), (400, [8] * 5), (10_000, [40])])
def test_a_segment_is_cut_to_the_rate_of_its_path(mbit, sizes):
    switch = switch_of(network(path=Queue(mbit * 125_000, 10**9)))
    switch.accept(tcp(bytes(40 * 1448), 1448), switch.ports[0], 0)
    assert [piece.packets for piece in switch.release(FOREVER, 100)] == sizes


def test_a_change_of_the_rate_changes_the_longest_segment():
    net = network(path=Queue(10_000 * 125_000, 10**9))
    switch = switch_of(net)
    slow = dataclasses.replace(net.links[0, 1], queue=Queue(100 * 125_000, 10**9))
    switch.update(other_path(net, (0, 1), slow))
    switch.accept(tcp(bytes(4 * 1448), 1448), switch.ports[0], 0)
    assert [piece.packets for piece in switch.release(FOREVER, 100)] == [2, 2]


def test_jitter_of_a_segment_is_that_of_the_slowest_of_its_packets():
    """The largest of 40 draws has a mean of 2.16 standard deviations."""
    switch = switch_of(network(jitter_ms=1.0))
    for number in range(1000):
        switch.accept(tcp(bytes(40 * 1448), 1448), switch.ports[0], number * 100.0 * MS)
    delays = [segment.last / MS - 100 * number for number, segment in enumerate(switch.release(FOREVER, 1000))]
    assert sum(delays) / len(delays) == pytest.approx(10 + 2.16, abs=0.1)


def test_a_single_packet_needs_no_virtio_values():
    header = bytearray(20)
    header[0], header[16:20] = 0x45, socket.inet_aton("10.0.0.1")
    segment = Segment(NO_OFFLOAD + bytes(header) + bytes(80), None, 0)
    assert (segment.packets, segment.nbytes, segment.head, segment.tail) == (1, 100, 100, 100)
