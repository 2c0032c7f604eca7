"""The relay emulator, as the controller sees it: a userspace process that holds the workers' TUN devices."""

from __future__ import annotations

from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.emulators.process import EmulatorProcess


class RelayEmulator(EmulatorProcess):
    """An emulated network in userspace, for workers that bring their own TUN devices."""

    name = "relay"
    module = "wanbench.harness.emulators.relay.process"
    attachment = "tun"

    def attach(self, rank: int, fd: int) -> None:
        """Connect the TUN device of a worker; the relay gets its own copy of `fd`, so close yours.

        A rank that is attached again replaces the old one (whose packets in flight are dropped).

        Raises:
            EmulatorError: the relay is gone.
        """
        self._ask({"do": "attach", "rank": rank, "address": worker_address(rank)}, [fd])
