"""What `auto` means on this host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice


class ThisHost:
    """The host that runs, as `plan.auto.Host`."""

    def testbed(self) -> str:
        """Containers where some wait for us, else network namespaces."""
        return testbeds.chosen()

    def emulator(self, testbed: str) -> str:
        """netem where the kernel has it and this user may use it, else the relay."""
        return choice.chosen(testbeds.home_of(testbed))[0]


def explained(auto: Mapping[str, Any]) -> Iterator[str]:
    """Which emulator `auto` became, and why, a line for each testbed."""
    for testbed, emulator in auto.get("emulator", {}).items():
        yield f"emulator {emulator}: {choice.chosen(testbeds.home_of(testbed))[1]}"
