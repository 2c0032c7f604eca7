"""What workers run in."""

from __future__ import annotations

from pathlib import Path

from harness.testbeds.base import Testbed


def opened(name: str, control: Path) -> Testbed:
    """Start the testbed of this name. `control` takes its logs. Raises: HostError."""
    from harness.testbeds.netns import NetnsTestbed

    return {"netns": NetnsTestbed}[name](control)
