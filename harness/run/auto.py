"""What `auto` means on this host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice


class ThisHost:
    """This host, as a `plan.auto.Host`."""

    def testbed(self) -> str:
        """docker if containers already wait for a run, else netns."""
        return testbeds.chosen()

    def emulator(self, testbed: str) -> str:
        """netem if the kernel has it and this user may use it, else relay."""
        return choice.chosen(testbeds.home_of(testbed))[0]


def explained(auto: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per testbed: the emulator that `auto` chose, and why."""
    for testbed, emulator in auto.get("emulator", {}).items():
        yield f"emulator {emulator}: {choice.chosen(testbeds.home_of(testbed))[1]}"
