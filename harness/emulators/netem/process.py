"""The netem process holds the routers of an emulated network and changes their queues on command.

`harness.emulators.netem.emulator` starts it. The kernel moves the packets. The namespaces have no names and end with
the process, which ends with its parent, and at the end of its control socket.
"""

from __future__ import annotations

import resource
import socket
from typing import Any

from wanbench.harness.emulators.netem.kernel import Kernel, KernelError
from wanbench.harness.emulators.netem.plan import Shape, place, shapes
from wanbench.harness.emulators.netem.state import Meter, check
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.emulators.serve import answer, main
from wanbench.workloads.process.configuration import Thing, first_change
from wanbench.workloads.process.control import Channel
from wanbench.workloads.process.namespace import die_with_parent


class Netem:
    """Turns commands into kernel calls."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._kernel = Kernel()
        self._meter = Meter(self._kernel)
        self._network: EmulatedNetwork | None = None  # as placed and shaped
        self._seed = 0
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._routers: list[Thing] = []

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `base.EmulatorStats`."""
        # At a reset the workers are measuring, and to compare takes a processor.
        return {**self._meter.report(reset=reset), "changed": None if reset else self._changed()}

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
            self._kernel.place(place(network))
            self._meter.placed(network)
        self._shape(network, seed)
        self._routers = self._routers or self._kernel.routers()

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Raises: ValueError, if its sites or workers differ."""
        if not network.same_places(self._network):
            raise ValueError("the sites or workers differ from the applied network")
        self._shape(network, self._seed)

    def _shape(self, network: EmulatedNetwork, seed: int) -> None:
        """Send each shape that changed, with all its attributes, and read all shapes back."""
        wanted = {(type(shape), shape.at, shape.minor): shape for shape in shapes(network, seed)}
        before = self._shapes
        try:
            for key, shape in wanted.items():
                if before.get(key) != shape:
                    self._kernel.shape(shape, exists=key in before)
            check(self._kernel, wanted.values())
        except ValueError:
            self._forget()  # a half-built network is useless
            raise
        self._network, self._seed, self._shapes = network, seed, wanted

    def _forget(self) -> None:
        """Remove the network. The next one is built from scratch."""
        self._network, self._shapes, self._routers = None, {}, []
        self._kernel.tear_down()
        self._meter.placed(None)


def _serve(control_fd: int, parent: int) -> None:
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))  # several descriptors per namespace
    with socket.socket(fileno=control_fd) as control:
        channel, netem = Channel(control), Netem(parent)
        while answer(channel, netem):
            pass


if __name__ == "__main__":
    main("wanbench.harness.emulators.netem.process", _serve)
