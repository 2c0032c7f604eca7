"""The path that a sender's packets take, packets on their way, and packets that are lost in an outage."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.streams import Stream

MIN_TIMEOUT_NS = 200_000_000
MAX_TIMEOUT_NS = 120_000_000_000


@dataclass(frozen=True, slots=True)
class Way:
    """The path of a message for its connection.

    Attributes:
        rtt_ns: round-trip time without queueing.
        ns_per_byte: of the narrowest queue; 0 if unlimited.
        room: bytes that its buffer holds.
        paced: whether the sender keeps to this rate, so that it never fills the queue.
        loss: probability that a packet sent again is lost.
    """

    rtt_ns: float
    ns_per_byte: float
    room: float = math.inf
    paced: bool = True
    loss: float = 0.0

    @property
    def full(self) -> float:
        """The bytes that fill it; infinite if its rate is unlimited."""
        return self.rtt_ns / self.ns_per_byte if self.ns_per_byte else math.inf


@dataclass(slots=True)
class Sent:
    """Bytes on their way, in the order of their transmission.

    Attributes:
        number: counts transmissions. nbytes: of them. sent_ns: when.
        acked_ns: when their acknowledgement arrives; unused if they are lost.
        again: whether they were sent before.
        later: packets sent later that have been acknowledged. doubted_ns: when the first of these was, or would have
            been, had it been sent at the same time.
    """

    number: int
    nbytes: float
    sent_ns: float
    acked_ns: float
    again: bool = False
    later: float = 0.0
    doubted_ns: float = math.inf

    def delayed(self, by_ns: float, grown: float) -> Sent:
        """The same, sent later, and larger by a factor."""
        return Sent(self.number, self.nbytes * grown, self.sent_ns + by_ns, self.acked_ns + by_ns, self.again)


@dataclass(frozen=True)
class Lost:
    """The part of a message that is lost in an outage.

    Attributes:
        at_ns: when its first packet was lost.
        rtt_ns: round-trip time of the connection without queueing.
        smoothed_ns: round-trip time that TCP measured at the end of a burst: it includes the queue of that burst in
            one direction and, as workers send at the same time, of another burst in the other.
        packets: number of packets of the whole message.
        nbytes: number of lost bytes.
    """

    at_ns: int
    rtt_ns: int
    smoothed_ns: int
    packets: int
    nbytes: float


def attempts(lost: Lost) -> Iterator[tuple[int, bool]]:
    """Yield the retransmissions of unacknowledged data as (time, whether it is a probe), without end.

    A probe (RFC 8985) is sent after two round trips, 200 ms later if the message has only one packet, but never later
    than the timeout. The timeout then restarts, as in Linux (`tcp_send_loss_probe`).
    """
    timeout = lost.smoothed_ns + MIN_TIMEOUT_NS
    time = lost.at_ns + min(2 * lost.smoothed_ns + (MIN_TIMEOUT_NS if lost.packets <= 1 else 0), timeout)
    yield time, True
    while True:
        time += timeout
        yield time, False
        timeout = min(2 * timeout, MAX_TIMEOUT_NS)


def cut(random: Stream, nbytes: float, losses: int, tail_lost: bool) -> Iterator[tuple[float, bool]]:
    """Cut a message where packets are lost, at random: yield (bytes, whether they are one lost packet).

    Args:
        losses: number of lost packets. tail_lost: whether the last packet is one of them.
    """
    packets = max(1, math.ceil(nbytes / SEGMENT_BYTES))
    last = [packets - 1] if tail_lost else []
    begin = 0
    for packet in [*random.some(min(losses - len(last), packets - 1), packets - 1), *last]:
        if packet > begin:
            yield (packet - begin) * float(SEGMENT_BYTES), False
        yield min(float(SEGMENT_BYTES), nbytes - packet * SEGMENT_BYTES), True
        begin = packet + 1
    if begin < packets:
        yield nbytes - begin * float(SEGMENT_BYTES), False
