"""What `auto` means on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.plan.load import Capacity
from wanbench.harness.plan.plan import Plan
from wanbench.harness.run.host import available_bytes
from wanbench.harness.run.speed import slowness


class ThisHost:
    """This host, as a `plan.auto.Host`."""

    def testbed(self) -> str:
        """docker if containers already wait for a run, else netns."""
        return testbeds.chosen()

    def emulator(self, testbed: str) -> str:
        """netem if the kernel has it and this user may use it, else relay."""
        return choice.chosen(testbeds.home_of(testbed))[0]

    def capacity(self) -> Capacity:
        """The processors that this process may use, their speed, and the memory that is available now."""
        return Capacity(len(os.sched_getaffinity(0)), available_bytes(), slowness())


def explained(plan: Plan) -> Iterator[str]:
    """Yield what to know before a run.

    One line per testbed: the emulator that `auto` chose, and why. Then the payload scale that it chose, and unequal
    numbers of steps.
    """
    for testbed, emulator in plan.auto.get("emulator", {}).items():
        yield f"emulator {emulator}: {choice.chosen(testbeds.home_of(testbed))[1]}"
    yield from scale_explained(plan)
    if plan.unequal_steps is not None and not plan.part:
        yield plan.unequal_steps


def scale_explained(plan: Plan) -> Iterator[str]:
    """Yield a line about the payload scale if `auto` chose it."""
    if plan.why_scale is not None:
        yield f"payload_scale {plan.auto['payload_scale']:g}: {plan.why_scale}"
