"""What `auto` means: asked once, of the host that runs, and stored with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Host(Protocol):
    """Who knows what the host that runs can do."""

    def testbed(self) -> str:
        """What `run.testbed = "auto"` means there."""

    def emulator(self, testbed: str) -> str:
        """What `run.emulator = "auto"` means there for a testbed."""


@dataclass(frozen=True)
class FixedHost:
    """A host of which the answers are known."""

    its_testbed: str = "netns"
    its_emulator: str = "relay"

    def testbed(self) -> str:
        """See `Host`."""
        return self.its_testbed

    def emulator(self, testbed: str) -> str:
        """See `Host`."""
        return self.its_emulator
