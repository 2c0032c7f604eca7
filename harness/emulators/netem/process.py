"""The netem process: holds the routers of an emulated network, and changes their queues on command.

Started by `harness.emulators.netem.emulator`. It moves no packets, the kernel does. The namespaces have no names
and end with it; it ends with its parent, and at the end of its control socket.
"""

from __future__ import annotations

import resource
import socket
from typing import Any

from wanbench.harness.emulators.netem.kernel import Kernel
from wanbench.harness.emulators.netem.plan import Shape, place, shapes
from wanbench.harness.emulators.netem.state import Meter, check
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.emulators.serve import answer, main
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.namespace import die_with_parent


class Netem:
    """Commands in, kernel calls out."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._kernel = Kernel()
        self._meter = Meter(self._kernel)
        self._network: EmulatedNetwork | None = None  # as placed and shaped
        self._seed = 0
        self._shapes: dict[tuple[Any, ...], Shape] = {}

    def report(self, *, reset: bool) -> dict[str, Any]:
        """The fields of `base.EmulatorStats`."""
        return self._meter.report(reset=reset)

    def attach(self, rank: int, fd: int) -> None:
        """Join the namespace of a worker; the next network is built anew."""
        self._forget()
        self._kernel.attach(rank, fd)
        die_with_parent(self._parent)  # once more: the kernel forgets it where a process gains rights

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build the places where they are others, and give them their values."""
        if not network.has_places_of(self._network):
            self._forget()
            self._kernel.place(place(network))
            self._meter.placed(network)
        self._shape(network, seed)

    def update(self, network: EmulatedNetwork) -> None:
        """New values for the same places. Raises: ValueError."""
        if not network.has_places_of(self._network):
            raise ValueError("the network has other places")
        self._shape(network, self._seed)

    def _shape(self, network: EmulatedNetwork, seed: int) -> None:
        """Send what differs from what was sent before, each with all its attributes, and read all of it back."""
        wanted = {(type(shape), shape.at, shape.minor): shape for shape in shapes(network, seed)}
        before = self._shapes
        try:
            for key, shape in wanted.items():
                if before.get(key) != shape:
                    self._kernel.shape(shape, exists=key in before)
            check(self._kernel, wanted.values())
        except ValueError:
            self._forget()  # half of it is no network
            raise
        self._network, self._seed, self._shapes = network, seed, wanted

    def _forget(self) -> None:
        """The next network is built anew."""
        self._network, self._shapes = None, {}
        self._kernel.tear_down()
        self._meter.placed(None)


def _serve(control_fd: int, parent: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # several descriptors for each namespace
    with socket.socket(fileno=control_fd) as control:
        channel, netem = Channel(control), Netem(parent)
        while answer(channel, netem):
            pass


if __name__ == "__main__":
    main("wanbench.harness.emulators.netem.process", _serve)
