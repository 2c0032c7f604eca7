"""The controller's side of netem: routers in the kernel, between the workers' namespaces."""

from __future__ import annotations

from wanbench.harness.emulators.process import Emulator


class NetemEmulator(Emulator):
    """An emulated network in the kernel, for workers that bring their network namespaces."""

    name = "netem"
    module = "wanbench.harness.emulators.netem.process"
    attachment = "netns"
    patience_s = 300.0  # a hundred sites have ten thousand paths, which take some milliseconds each
