"""The TCP of hosts: the buffers of kernels by name, and what they let a connection carry (`workloads.comm.windows`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from wanbench.harness.emulators.plan import EmulatedNetwork, buffer_that_holds
from wanbench.harness.spec.tables import TcpTable
from wanbench.workloads.comm.windows import PAYLOAD_OF_QUEUE, WINDOW_SHARE, in_flight

_FIRST_RECEIVE, _FIRST_SEND = 131_072, 16_384
_FIRST_SEND_TUNED = 65_536
_LEAST_SHARE = 0.5  # of all kernels


@dataclass(frozen=True)
class HostTcp:
    """The buffers of a host.

    Attributes:
        receive, send: bytes of the largest buffer. first_send: bytes of a sender's first buffer.
        window_share: the share of a receive buffer that is the window, of the imitated kernel. None imitates none; then
            the window is counted as the least of all kernels.
    """

    receive: int
    send: int
    first_send: int = _FIRST_SEND
    window_share: float | None = None

    @property
    def in_flight(self) -> float:
        """The most payload that one connection has in flight, on average, while it sends without end."""
        return in_flight(self.receive, self.send, self.window_share or _LEAST_SHARE)

    @property
    def queue(self) -> float:
        """The payload that the send buffer of a connection holds."""
        return PAYLOAD_OF_QUEUE * self.send

    def scaled(self, factor: float) -> HostTcp:
        return replace(self, receive=math.ceil(factor * self.receive), send=math.ceil(factor * self.send))

    def settings(self) -> dict[str, str | float]:
        """For `workloads.process.namespace.set_tcp`."""
        return {
            "receive": f"4096 {min(_FIRST_RECEIVE, self.receive)} {self.receive}",
            "send": f"4096 {min(self.first_send, self.send)} {self.send}",
            **({} if self.window_share is None else {"window_share": self.window_share}),
        }


KERNELS: Mapping[str, HostTcp] = {
    "stock-6.1": HostTcp(6 << 20, 4 << 20, window_share=0.5),
    "stock-6.18": HostTcp(32 << 20, 4 << 20, window_share=WINDOW_SHARE),
}
"""Hosts with Linux as it is installed, by preset; before 6.16 a receiver has 6 MiB."""


@dataclass(frozen=True)
class Bottleneck:
    """A path of which one connection takes less than its rate, because of the buffers of its hosts.

    Attributes:
        src, dst: sites. rtt_ms: the round trip. rate_bps, carried_bps: of the path, and of one connection.
        buffer_bytes: of hosts on which one connection fills the path.
    """

    src: str
    dst: str
    rtt_ms: float
    rate_bps: float
    carried_bps: float

    @property
    def buffer_bytes(self) -> int:
        return buffer_that_holds(self.rate_bps / 8 * self.rtt_ms / 1e3)


def bottleneck(network: EmulatedNetwork, host: HostTcp) -> Bottleneck | None:
    """Return the path of which one connection takes the smallest share; None if it fills all that have a rate."""
    limited = []
    for (src, dst), link in network.links.items():
        rtt_s, rate = (link.delay_ns + network.links[dst, src].delay_ns) / 1e9, network.rate(src, dst)
        if rate is not None and rate * rtt_s > host.in_flight:
            carried = 8 * host.in_flight / rtt_s
            limited.append(Bottleneck(network.sites[src], network.sites[dst], 1e3 * rtt_s, 8 * rate, carried))
    return max(limited, key=lambda path: path.rate_bps / path.carried_bps, default=None)


def host_tcp(tcp: TcpTable, unbinding: int, scale: float = 1.0) -> HostTcp:
    """Return the buffers of a preset with the keys that refine it.

    Args:
        unbinding: bytes of a buffer that limits no connection of the network, of a tuned host.
        scale: of messages and rates, by which windows shrink too, so that everything takes the same time.
    """
    kernel = KERNELS.get(tcp.preset)
    host = HostTcp(unbinding, unbinding, _FIRST_SEND_TUNED) if kernel is None else kernel.scaled(scale)
    stated = {"receive": tcp.receive_buffer, "send": tcp.send_buffer}
    return replace(host, **{name: math.ceil(scale * size.bytes) for name, size in stated.items() if size is not None})
