"""The value of `auto`: chosen once, by the host that runs, and stored with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wanbench.harness.plan.load import Capacity

_LAPTOP = Capacity(2, 8 << 30)


class Host(Protocol):
    """Chooses the values of `auto` by what the host can run."""

    def testbed(self) -> str:
        """Return the testbed that `run.testbed = "auto"` chooses."""

    def emulator(self, testbed: str) -> str:
        """Return the emulator that `run.emulator = "auto"` chooses for a testbed."""

    def capacity(self) -> Capacity:
        """Return the processors and memory from which `workload.payload_scale = "auto"` is chosen."""


@dataclass(frozen=True)
class FixedHost:
    """A host with fixed answers."""

    testbed_name: str = "netns"
    emulator_name: str = "relay"
    size: Capacity = _LAPTOP

    def testbed(self) -> str:
        """See `Host`."""
        return self.testbed_name

    def emulator(self, testbed: str) -> str:
        """See `Host`."""
        return self.emulator_name

    def capacity(self) -> Capacity:
        """See `Host`."""
        return self.size
