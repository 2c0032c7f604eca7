"""The netem process: holds the routers of an emulated network, and changes their queues on command.

Started by `harness.emulators.netem.emulator`. It moves no packets, the kernel does. The namespaces have no names
and end with it; it ends with its parent, and at the end of its control socket.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import signal
import socket
import sys
from typing import Any

from wanbench.harness.emulators.netem.kernel import Kernel
from wanbench.harness.emulators.netem.plan import Shape, place, shapes
from wanbench.harness.emulators.netem.state import Meter, check
from wanbench.harness.emulators.plan import Network
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.namespace import die_with_parent


class Netem:
    """Commands in, kernel calls out."""

    def __init__(self, control: Channel, parent: int) -> None:
        self._control, self._parent = control, parent
        self._kernel = Kernel()
        self._meter = Meter(self._kernel)
        self._network: Network | None = None  # as placed and shaped
        self._seed = 0
        self._shapes: dict[tuple[Any, ...], Shape] = {}

    def serve(self) -> None:
        """Until the control socket ends."""
        while (request := self._control.recv()) is not None:
            try:
                answer = {"ok": self._obey(request)}
            except (ValueError, OSError) as error:
                answer = {"error": f"{request.get('do')}: {error}"}
            except (KeyError, TypeError) as error:
                answer = {"error": f"{request['do']}: a value is missing or of another kind: {error}"}
            self._control.send(answer)

    def _obey(self, request: dict[str, Any]) -> Any:
        match text(request, "do"):
            case "attach":
                self._attach(request["rank"], self._control.take_fd())
            case "apply":
                self._apply(Network.from_json(request["network"]), request["seed"])
            case "update":
                self._update(Network.from_json(request["network"]))
            case "stats":
                return self._meter.report(reset=request["reset"])
            case other:
                raise ValueError(f"unknown command {other!r}")
        return None

    def _attach(self, rank: int, fd: int) -> None:
        self._forget()
        self._kernel.attach(rank, fd)
        die_with_parent(self._parent)  # once more: the kernel forgets it where a process gains rights

    def _apply(self, network: Network, seed: int) -> None:
        before = self._network
        if before is None or (before.sites, before.site_of) != (network.sites, network.site_of):
            self._forget()
            self._kernel.place(place(network))
            self._meter.placed(network)
        self._shape(network, seed)

    def _update(self, network: Network) -> None:
        before = self._network
        if before is None or (before.sites, before.site_of) != (network.sites, network.site_of):
            raise ValueError("the network has other places")
        self._shape(network, self._seed)

    def _shape(self, network: Network, seed: int) -> None:
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


def main() -> None:
    """Entry of the process: `--control-fd N --parent PID`."""
    parser = argparse.ArgumentParser(prog="wanbench.harness.emulators.netem.process")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # several descriptors for each namespace
    with socket.socket(fileno=arguments.control_fd) as control, contextlib.suppress(ConnectionError):
        try:
            Netem(Channel(control), arguments.parent).serve()
        except ControlError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
