"""What workers run in.

Layout
    base.py     Testbed, Slot, WorkerHandle: the interface; Group: what a cell asks for
    slot.py     workers with an emulator of their own, whatever they live in
    netns.py    processes in network namespaces
"""

from __future__ import annotations

from pathlib import Path

from harness.testbeds.base import Testbed

TESTBEDS = ("netns",)


def check(name: str) -> None:
    """Refuse in one line a testbed that this host cannot run. Raises: HostError."""


def opened(name: str, control: Path) -> Testbed:
    """Start the testbed of this name. `control` takes its logs. Raises: HostError."""
    from harness.testbeds.netns import NetnsTestbed

    return {"netns": NetnsTestbed}[name](control)
