"""Which processes go first while a network is emulated, and processors that stay awake for them.

A relay runs before all other processes of this host: its packets would otherwise be late whenever processors are busy.
Not with real-time priority: from Linux 6.12 on, the kernel then stops the process for 50 ms at a time in favour of the
others (its fair server). Several of these pauses a second were seen, and short buffers overflowed.

A virtual processor with nothing to do goes back to the physical host, and returns milliseconds late if other guests use
it. An emulator sleeps between packets, so its packets are late although the machine is nearly idle: on one such machine
by 8 ms (p99), and by 0.2 ms with processors that are awake. So a process at idle priority keeps each of them busy. All
other processes go before it, but it uses the processor time that nobody else needs. The kernel compares the priorities
of processes within a session only, so it has a session, and that has the lowest priority too: in the session of
wanbench it took half a processor from a busy program, which has a session of its own, and in its own it takes 1.4 %.

Not in User-Mode Linux: there packets were late by up to 15 ms (p99) with this process, and by up to 5 without.

    python -m wanbench.harness.process.priority PROCESSOR PARENT_PID
"""

import ctypes
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wanbench.harness.process import child
from wanbench.workloads.process.namespace import die_with_parent

_HIGHEST = -20
_NICEST = 19
SWITCH = "WANBENCH_AWAKE"
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_SLICE_NS = 100_000  # the shortest that the kernel grants
# struct sched_attr of linux/sched/types.h: size, policy, flags, nice, priority, runtime, deadline, period
_ATTRIBUTES = "=IIQiIQQQ"
_libc = ctypes.CDLL(None, use_errno=True)


def run_ahead() -> None:
    """Put this process before the others, as far as the kernel and its rights allow.

    Three things count: its priority, which the kernel compares within a session only; the priority of its session,
    which therefore is its own; and, for a process without rights, short slices, for which Linux interrupts others from
    6.12 on. Beside busy processes of another session, 1 % of wake-ups were late by 6.9 ms or more, with short slices by
    0.6 ms, with all three by 0.04 ms.
    """
    with suppress(PermissionError):
        os.setsid()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _HIGHEST)
    _set_session_priority(_HIGHEST)
    if number := _SCHED_SETATTR.get(platform.machine()):
        size, nice = struct.calcsize(_ATTRIBUTES), os.getpriority(os.PRIO_PROCESS, 0)
        attributes = struct.pack(_ATTRIBUTES, size, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
        _libc.syscall(number, 0, ctypes.create_string_buffer(attributes, size), 0)  # older kernels ignore the slice


def _set_session_priority(nice: int) -> None:
    with suppress(OSError):  # kernels without autogroups have no such file, and users may write it ten times a second
        Path("/proc/self/autogroup").write_text(f"{nice}")


@contextmanager
def processors_awake() -> Iterator[None]:
    """Keep the processors of a virtual machine awake, unless WANBENCH_AWAKE=off is in the environment."""
    processes = []
    try:
        if os.environ.get(SWITCH) != "off" and _is_virtual():
            processes = [
                subprocess.Popen(
                    child.command(__name__, str(processor), str(os.getpid())),
                    env=child.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                for processor in os.sched_getaffinity(0)
            ]
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


def main() -> None:
    """Keep one processor busy at idle priority until the parent ends."""
    die_with_parent(int(sys.argv[2]))
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.setsid()
    os.nice(_NICEST)  # so that the kernel counts this time as that of nice processes
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        _set_session_priority(_NICEST)
        for _ in range(10_000_000):
            pass


if __name__ == "__main__":
    main()
