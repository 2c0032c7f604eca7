"""What a program started ends with it, even after it left its session and its parent."""

import os
import subprocess
import sys

from leftovers import started_with

PROGRAM = """
import subprocess
from wanbench.workloads.process.descendants import adopt_orphans
end = adopt_orphans()
subprocess.run(["setsid", "--fork", "sh", "-c", "sleep 600 & sleep 600"])
{}
"""


def left(mark, last):
    subprocess.run([sys.executable, "-c", PROGRAM.format(last)], env={**os.environ, "LEFT": mark}, check=True)
    return started_with(f"LEFT={mark}")


def test_orphans_end_with_their_adopter():
    assert left(f"ended-{os.getpid()}", "end()") == set()


def test_without_it_they_stay():
    stay = left(f"stay-{os.getpid()}", "")
    for pid in stay:
        os.kill(pid, 9)
    assert len(stay) >= 1
