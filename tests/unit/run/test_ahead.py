"""A process ahead of all others: what the kernel then says about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_AHEAD = """
import json, os
from pathlib import Path
from wanbench.harness.process import ahead

ahead.run_ahead()
group = Path("/proc/self/autogroup")
debugging = dict(line.split(":") for line in Path("/proc/self/sched").read_text().splitlines() if ":" in line)
print(json.dumps({
    "session": os.getsid(0) == os.getpid(), "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "autogroup": group.read_text().split()[-1] if group.exists() else None,
    "slice": next((int(value) for name, value in debugging.items() if name.strip() == "se.slice"), None),
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_rights_it_has_the_short_slices_that_anyone_may_have():
    found = ahead("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")
    assert found["nice"] == 0
    assert found["slice"] in {100_000, None}  # kernels before 6.12 have no slices of a process's own
