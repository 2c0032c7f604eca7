"""Keep the processors of a virtual machine awake while a network is emulated.

A virtual processor with nothing to do goes back to the physical host, and returns milliseconds late if other guests use
it. An emulator sleeps between packets, so its packets are late although the machine is nearly idle: on one such machine
by 8 ms (p99), and by 0.2 ms with processors that are awake. So a process at idle priority keeps each of them busy. All
other processes go before it, but it uses the processor time that nobody else needs.

Not in User-Mode Linux: there packets were late by up to 15 ms (p99) with this process, and by up to 5 without.

    python -m wanbench.harness.process.awake PROCESSOR PARENT_PID
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wanbench.harness.process import child
from wanbench.workloads.process.namespace import die_with_parent

SWITCH = "WANBENCH_AWAKE"
_NICEST = 19


@contextmanager
def processors_awake() -> Iterator[None]:
    """Keep the processors of a virtual machine awake, unless WANBENCH_AWAKE=off is in the environment."""
    processes = []
    try:
        if os.environ.get(SWITCH) != "off" and _is_virtual():
            processes = [_start(processor) for processor in os.sched_getaffinity(0)]
        yield
    finally:
        for process in processes:
            process.kill()
            with suppress(OSError):  # on a busy host, a process at idle priority would wait for the processor to end
                os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
        for process in processes:
            process.wait()


def _is_virtual() -> bool:
    about = Path("/proc/cpuinfo").read_text()
    flags = (line for line in about.splitlines() if line.startswith("flags"))
    return "hypervisor" in next(flags, "").split() and "User Mode Linux" not in about


def _start(processor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        child.command(__name__, str(processor), str(os.getpid())),
        env=child.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Keep one processor busy at idle priority until the parent ends."""
    die_with_parent(int(sys.argv[2]))
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.nice(_NICEST)  # so that the kernel counts this time as that of nice processes
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


if __name__ == "__main__":
    main()
