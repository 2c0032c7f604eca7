"""The netem emulator, as the controller sees it: routers in the kernel, between the workers' own namespaces."""

from __future__ import annotations

from wanbench.harness.emulators.process import EmulatorProcess


class NetemEmulator(EmulatorProcess):
    """An emulated network in the kernel, for workers that bring their network namespaces."""

    name = "netem"
    module = "wanbench.harness.emulators.netem.process"
    attachment = "netns"
    patience_s = 300.0  # a hundred sites have ten thousand paths, at some milliseconds each

    def attach(self, rank: int, fd: int) -> None:
        """Join the network namespace of a worker; its device `wan0` is there once a network is applied.

        A rank that is attached again replaces the old one, and the network has to be applied again.

        Raises:
            EmulatorError: the process is gone, or may not enter that namespace.
        """
        self._ask({"do": "attach", "rank": rank}, [fd])
