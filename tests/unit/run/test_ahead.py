"""A process ahead of all others: what the kernel then says about it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

_AHEAD = """
import json, os
from pathlib import Path
from wanbench.harness.process import priority

priority.run_ahead()
group = Path("/proc/self/autogroup")
shown = Path("/proc/self/sched")
lines = shown.read_text().splitlines() if shown.exists() else []
print(json.dumps({
    "session": os.getsid(0) == os.getpid(), "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "autogroup": group.read_text().split()[-1] if group.exists() else None,
    "slice": next((int(line.split(":")[1]) for line in lines if line.startswith("se.slice")), None),
}))
"""  # fmt: skip


def ahead(*before: str) -> dict[str, object]:
    """What holds of a process that has put itself ahead."""
    return json.loads(subprocess.check_output([*before, sys.executable, "-c", _AHEAD], text=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a higher priority")
def test_a_process_ahead_has_a_session_of_its_own_with_the_highest_priority():
    found = ahead()
    assert found["session"]
    assert found["nice"] == -20
    assert found["autogroup"] in {"-20", None}


@pytest.mark.skipif(
    [int(number) for number in re.findall(r"\d+", platform.release())[:2]] < [6, 12]
    or not Path("/proc/self/sched").exists(),
    reason="processes have slices of their own from Linux 6.12 on, and not every kernel shows them",
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_rights_it_has_the_short_slices_that_anyone_may_have():
    found = ahead("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")
    assert found["nice"] == os.getpriority(os.PRIO_PROCESS, 0)  # as it was started
    assert found["slice"] == 100_000
