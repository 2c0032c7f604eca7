"""The controller's side of the relay: a userspace process that holds the workers' TUN devices."""

from __future__ import annotations

from wanbench.harness.emulators.process import Emulator


class RelayEmulator(Emulator):
    """An emulated network in userspace, for workers that bring their own TUN devices."""

    name = "relay"
    module = "wanbench.harness.emulators.relay.process"
    attachment = "tun"
