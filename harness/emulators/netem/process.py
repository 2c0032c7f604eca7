"""The netem process holds the routers of an emulated network and changes their queues on command.

It reads them back from the kernel: whether they have the values that were asked for, and their counters.
`harness.emulators.emulator.NetemEmulator` starts it. The kernel moves the packets. The namespaces have no names and end
with the process, which ends with its parent, and at the end of its control socket.
"""

from __future__ import annotations

import resource
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from wanbench.harness.emulators.netem.kernel import KINDS, Kernel, KernelError, keywords, netem_values
from wanbench.harness.emulators.netem.plan import (
    LOCAL,
    ONLY,
    Class,
    End,
    Fifo,
    Netem,
    Shape,
    delay_device,
    down_device,
    leaf_of,
    minor_of,
    path_device,
    shapes,
    steps_of,
    up_device,
    worker_device,
)
from wanbench.harness.emulators.plan import NO_NETWORK, EmulatedNetwork
from wanbench.harness.emulators.serve import answer, main
from wanbench.workloads.process.configuration import Thing, first_change
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.namespace import die_with_parent

_TICK_S = 64e-9
_BURST_GRAIN_S = 1e-6  # pyroute2 rounds bursts down to whole microseconds
_ROOT = 0x10000
_LINK = -1  # the device itself, next to its classes


def check(kernel: Kernel, shapes: Iterable[Shape]) -> None:
    """Compare every attribute with the kernel's. Raises: KernelError, which names the first difference."""
    by_device: dict[End, list[Shape]] = defaultdict(list)
    for shape in shapes:
        by_device[shape.at].append(shape)
    for at, expected in by_device.items():
        qdiscs = {message["handle"]: message for message in kernel.qdiscs(at)}
        classes = {message["handle"]: message for message in kernel.classes(at)}
        for shape in expected:
            table, handle = (
                (classes, _ROOT + shape.minor) if isinstance(shape, Class) else (qdiscs, leaf_of(shape.minor))
            )
            _compare(shape, None if handle not in table else _values(shape, table[handle]))


def _compare(shape: Shape, kernel_values: Mapping[str, Any] | None) -> None:
    where = f"{shape.at} ({shape.path}): {KINDS[type(shape)]}{' class' if isinstance(shape, Class) else ''}"
    if kernel_values is None:
        raise KernelError(f"{where}: does not exist in the kernel")
    for name, expected in _expected(shape).items():
        actual, grain = kernel_values[name], 0.0
        if name in ("burst", "cburst") and isinstance(shape, Class):
            grain = shape.rate * _BURST_GRAIN_S + 1
        if name == "seed" and actual is None:
            continue  # a kernel before 6.6 uses its own random generator
        if actual is None or abs(actual - expected) > grain:
            raise KernelError(f"{where}: {name}: expected {expected}, the kernel has {actual}")


def _expected(shape: Shape) -> dict[str, Any]:
    if not isinstance(shape, Netem):
        return keywords(shape)
    never = dict.fromkeys(("gap", "duplicate", "corrupt", "burst_survival", "loss_between_bursts"), 0)
    unseen = {"distribution"} | ({"seed"} if shape.seed is None else set())
    return {name: value for name, value in (never | keywords(shape)).items() if name not in unseen}


def _values(shape: Shape, message: Any) -> dict[str, Any]:
    kind, options = message.get_attr("TCA_KIND"), message.get_attr("TCA_OPTIONS")
    if kind != (expected := KINDS[type(shape)]):
        raise KernelError(f"{shape.at} ({shape.path}): expected a {expected}, the kernel has a {kind}")
    if isinstance(shape, Netem):
        return netem_values(options)
    if isinstance(shape, Fifo):
        return {"limit": options["limit"]}
    parms = options.get_attr("TCA_HTB_PARMS")
    rate = options.get_attr("TCA_HTB_RATE64") or parms["rate"]
    ceil = options.get_attr("TCA_HTB_CEIL64") or parms["ceil"]
    return {
        "rate": rate,
        "ceil": ceil,
        "burst": parms["buffer"] * _TICK_S * rate,
        "cburst": parms["cbuffer"] * _TICK_S * ceil,
        "quantum": parms["quantum"],
    }


class Count(NamedTuple):
    """The packets and IP bytes that passed one qdisc or device, and the packets that it dropped."""

    packets: int
    bytes: int
    dropped: int

    def __sub__(self, other: Count) -> Count:
        return Count(self.packets - other.packets, self.bytes - other.bytes, self.dropped - other.dropped)


_NONE = Count(0, 0, 0)
_Counts = dict[tuple[End, int], Count]


def _devices(network: EmulatedNetwork) -> list[End]:
    of_sites = [
        device
        for site in range(len(network.sites))
        for device in (up_device(network, site), path_device(site), delay_device(site), down_device(site))
    ]
    return of_sites + [worker_device(network, rank) for rank in range(network.workers)]


def _paths(network: EmulatedNetwork, counts: _Counts) -> list[dict[str, Any]]:
    rows = []
    for src, dst in sorted(network.links):
        queue, line = counts[path_device(dst), minor_of(src)], counts[delay_device(dst), minor_of(src)]
        rows.append(
            {
                "src": network.sites[src],
                "dst": network.sites[dst],
                "packets": line.packets,
                "bytes": line.bytes,
                "dropped": queue.dropped,
                "lost": line.dropped,
            }
        )
    return rows


def _sites(network: EmulatedNetwork, counts: _Counts) -> list[dict[str, Any]]:
    return [
        {
            "site": name,
            "up_dropped": counts[up_device(network, site), ONLY].dropped,
            "down_dropped": counts[down_device(site), ONLY].dropped,
        }
        for site, name in enumerate(network.sites)
    ]


class NetemProcess:
    """Turns commands into kernel calls."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._kernel = Kernel()
        self._network = NO_NETWORK  # as placed and shaped
        self._since, self._base = time.monotonic(), _Counts()  # of the counters: their last reset
        self._seed = 0
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._routers: list[Thing] = []

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `emulator.EmulatorStats`. The kernel does not report when a packet should have left."""
        seconds, network = time.monotonic() - self._since, self._network
        now = self._counts(network)
        counts: _Counts = defaultdict(lambda: _NONE)
        counts.update({key: count - self._base.get(key, _NONE) for key, count in now.items()})
        if reset:
            self._since, self._base = time.monotonic(), now
        paths, sites = _paths(network, counts), _sites(network, counts)
        last = [worker_device(network, rank) for rank in range(network.workers)]
        delivered = [counts[device, minor] for device in last for minor in (ONLY, LOCAL)]
        devices = [count for (_, minor), count in counts.items() if minor == _LINK]
        return {
            "emulator": "netem",
            "seconds": seconds,
            "packets": sum(count.packets for count in delivered),
            "bytes": sum(count.bytes for count in delivered),
            "drops": {
                "up": sum(site["up_dropped"] for site in sites),
                "path": sum(path["dropped"] for path in paths),
                "down": sum(site["down_dropped"] for site in sites),
                "loss": sum(path["lost"] for path in paths),
                "refused": sum(count.dropped for count in (*delivered, *devices)),
            },
            "paths": [path for path in paths if path["packets"] or path["dropped"] or path["lost"]],
            "sites": sites,
            # At a reset the workers are measuring, and to compare takes a processor.
            "changed": None if reset else self._changed(),
        }

    def _counts(self, network: EmulatedNetwork) -> _Counts:
        counts: _Counts = {}
        for at in _devices(network):
            for message in self._kernel.qdiscs(at):
                if message["parent"] >> 16 == _ROOT >> 16:
                    stats = message.get_attr("TCA_STATS2")
                    basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
                    counts[at, message["parent"] & 0xFFFF] = Count(basic["packets"], basic["bytes"], queue["drops"])
            link = self._kernel.link(at).get_attr("IFLA_STATS64")
            counts[at, _LINK] = Count(0, 0, link["tx_dropped"] + link["rx_dropped"])
        return counts

    def _changed(self) -> str | None:
        """Say what differs first from the values of the network, which a timeline can change, or from its routers."""
        try:
            check(self._kernel, self._shapes.values())
        except KernelError as error:
            return str(error)
        change = first_change(self._routers, self._kernel.routers())
        return None if change is None else ": ".join(change)

    def attach(self, rank: int, fd: int) -> None:
        """Join the namespace of a worker. The next network is built from scratch."""
        self._forget()
        self._kernel.attach(rank, fd)
        die_with_parent(self._parent)  # again, because the kernel forgets it when a process gains privileges

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build the sites and workers if they differ, and set their values."""
        if not network.same_places(self._network):
            self._forget()
            self._kernel.build(steps_of(network))
        self._shape(network, seed)
        self._routers = self._routers or self._kernel.routers()

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Raises: ValueError, if its sites or workers differ."""
        if not network.same_places(self._network):
            raise ValueError("the sites or workers differ from the applied network")
        self._shape(network, self._seed)

    def _shape(self, network: EmulatedNetwork, seed: int) -> None:
        """Send each shape that changed, with all its attributes, and read all shapes back."""
        expected = {(type(shape), shape.at, shape.minor): shape for shape in shapes(network, seed)}
        before = self._shapes
        try:
            for key, shape in expected.items():
                if before.get(key) != shape:
                    self._kernel.shape(shape, exists=key in before)
            check(self._kernel, expected.values())
        except ValueError:
            self._forget()  # a half-built network is useless
            raise
        self._network, self._seed, self._shapes = network, seed, expected

    def _forget(self) -> None:
        """Remove the network. The next one is built from scratch, and its devices count from zero."""
        self._network, self._shapes, self._routers, self._base = NO_NETWORK, {}, [], {}
        self._kernel.tear_down()


def _serve(control_fd: int, parent: int) -> None:
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))  # several descriptors per namespace
    with socket.socket(fileno=control_fd) as control:
        channel, netem = Channel(control), NetemProcess(parent)
        while answer(channel, netem):
            pass


if __name__ == "__main__":
    main(_serve)
