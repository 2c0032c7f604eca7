"""This host: what `auto` means on it, checks before a run, one emulation at a time, signals, and leftovers of runs.

Two emulations on a host would disturb each other, so processes lock the time namespace that they are in (`host_turn`).
The kernel has it from the start, so nothing is created that somebody could remove, replace or refuse to others. Every
user can open it, and containers have it in common, also if they share no files and have PID, network and user
namespaces of their own, because container engines make none of this kind. The kernel drops the lock when its holder
ends, however it ends.
"""

import fcntl
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.emulators.plan import build, worker_address
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD
from wanbench.harness.emulators.relay.switch import Switch
from wanbench.harness.errors import HostError, Interrupted, SpecError
from wanbench.harness.plan.cell import Cell, CommandCell
from wanbench.harness.plan.load import Capacity
from wanbench.harness.plan.plan import Plan
from wanbench.harness.plan.repetition import Inputs
from wanbench.harness.process import owner
from wanbench.harness.process.owner import locked, write_mark
from wanbench.harness.spec.command import check_there
from wanbench.harness.spec.launch_lines import remarks
from wanbench.harness.testbeds.docker.mounts import current
from wanbench.netprofiles import Delay, Rate, uniform
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.registry import check_data

SWITCH = "WANBENCH_TURN"
_SAMPLES, _WAKE_UPS, _SLEEP_S = 3, 70, 0.0002
# Processor time of a wake-up with one packet where the constants in `plan.load` hold: 70 us on a host that needed 78 us
# for a relayed packet, which takes 30 us by those constants.
_USUAL_S = 27e-6
_FIRST = 0xEFFFFFFA  # inode of the namespace that a kernel begins with: PROC_TIME_INIT_INO of its linux/proc_ns.h
_LOOK_S = 0.2


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


@cache
def slowness() -> float:
    """Processor time of the relay's model on this host, as a multiple of the usual one; at least 1. Takes 60 ms."""
    return max(1.0, min(_wake_up_s() for _ in range(_SAMPLES)) / _USUAL_S)


def _wake_up_s() -> float:
    profile = uniform(2, Delay.from_ms(10), Rate.from_mbit(1000))
    switch = Switch()
    ports = [switch.attach(rank, socket.inet_aton(worker_address(rank)), fd=-1) for rank in range(2)]
    switch.apply(build(profile, [site.name for site in profile.sites]), seed=0)
    packet = NO_OFFLOAD + b"\x45" + bytes(15) + ports[1].address + bytes(1480)
    began = time.process_time()
    for _ in range(_WAKE_UPS):
        time.sleep(_SLEEP_S)
        now = float(time.monotonic_ns())
        switch.accept(packet, ports[0], now)
        switch.release(now + 1e9, 1)
    return (time.process_time() - began) / _WAKE_UPS


def available_bytes() -> int:
    """Memory that programs can still use. Raises: HostError: it is not known."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise HostError("/proc/meminfo: no MemAvailable line; is /proc mounted?")


def explained(plan: Plan) -> Iterator[str]:
    """Yield what to know before a run.

    One line per testbed: the emulator that `auto` chose, and why. Then the payload scale that it chose, and unequal
    numbers of steps.
    """
    for testbed, emulator in plan.auto.get("emulator", {}).items():
        yield f"emulator {emulator}: {choice.chosen(testbeds.home_of(testbed))[1]}"
    yield from workload_explained(plan)
    if plan.unequal_steps is not None and not plan.part:
        yield plan.unequal_steps


def workload_explained(plan: Plan) -> Iterator[str]:
    """Yield a line about the payload scale if `auto` chose it, or how a command starts if not as the spec says.

    Raises:
        SpecError: the command cannot start so.
    """
    if plan.why_scale is not None:
        yield f"payload_scale {plan.auto['payload_scale']:g}: {plan.why_scale}"
    cell = plan.cells[-1]
    if isinstance(cell, CommandCell):
        yield from remarks(cell.command, cell.node(cell.workers))


def check_host(cells: Iterable[Cell]) -> None:
    """Refuse cells that cannot run here, before anything is measured.

    Raises:
        HostError: this host cannot run them. SpecError: a command or a data set does not exist.
    """
    cells = list(cells)
    inputs = {repr(cell.inputs): cell.inputs for cell in cells}.values()
    _check_data(inputs)
    for testbed in dict.fromkeys(cell.testbed for cell in cells):
        testbeds.check(testbed, {cell.containers.image for cell in cells if cell.testbed == testbed})
    for item in inputs:
        if item.command and testbeds.contained(item.testbed):
            _check_shown(item.folder, "workload.command", "its working folder")
        elif item.command:
            check_there(item.command[0], item.folder, "workload.command: ")
    for emulator, testbed in dict.fromkeys((cell.emulator, cell.testbed) for cell in cells if cell.workers > 1):
        try:
            if emulator is not None:
                choice.check(emulator, testbeds.home_of(testbed))
        except HostError as error:
            raise HostError(f"{error} (`--testbed virtual` simulates this)") from None
    available = available_bytes()
    for cell in cells:
        needed = cell.memory_bytes
        if needed > available:
            raise HostError(
                f"{cell.title.strip()}: needs about {needed / 2**30:.1f} GiB for {cell.workers} workers, "
                f"and {available / 2**30:.1f} GiB are available; use fewer workers or a smaller payload_scale"
            )


def _check_data(inputs: Iterable[Inputs]) -> None:
    """Check that every data set exists in its format, and that containers can see it. Raises: SpecError."""
    for item in inputs:
        if item.workload is None:
            continue
        try:
            check_data(item.workload)
        except WorkloadError as error:
            raise SpecError(str(error)) from None
        for folder in item.mounted if testbeds.contained(item.testbed) else ():
            _check_shown(folder, "workload.data", "that folder")


def _check_shown(folder: Path, key: str, what: str) -> None:
    if testbeds.adopted() is not None:
        raise SpecError(f"{key}: containers that already run cannot see {what}")
    current(folder)


@contextmanager
def host_turn(say: Callable[[str], None]) -> Iterator[str]:
    """Wait until nobody else emulates on this host, and hold it.

    Args:
        say: prints one line, if this has to wait.

    Yields:
        What a row says of it: "alone"; "unknown" if others can emulate beside this: WANBENCH_TURN=off is in the
        environment, the kernel has no time namespaces (before Linux 5.6), or this process is not in the first one.

    Raises:
        Interrupted: Ctrl-C or SIGTERM while it waits.
    """
    try:
        host = os.open("/proc/self/ns/time", os.O_RDONLY) if os.environ.get(SWITCH) != "off" else None
    except OSError:
        host = None
    if host is None:
        yield "unknown"
        return
    try:
        if not locked(host, fcntl.LOCK_EX):
            with stoppable() as stopped:
                say("waiting: another wanbench emulates on this host; each would disturb the other")
                while not (locked(host, fcntl.LOCK_EX) or stopped.wait(_LOOK_S)):
                    pass
            if stopped.is_set():  # also if both happened at once
                raise Interrupted("interrupted while waiting for the host; the same command continues")
        os.environ[SWITCH] = "off"  # what is started meanwhile, such as a program that runs wanbench, is part of this
        yield "alone" if os.fstat(host).st_ino == _FIRST else "unknown"
    finally:
        os.environ.pop(SWITCH, None)
        fcntl.flock(host, fcntl.LOCK_UN)  # a process that was forked meanwhile has a copy of the descriptor
        os.close(host)


class StopRequest:
    """Whether SIGINT or SIGTERM has come.

    It has no lock, unlike `threading.Event`: a handler that interrupts a thread which holds that lock waits for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self, *_: object) -> None:
        """Ask for a stop. It is a signal handler."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether a stop has been asked for."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Sleep this long, then return whether a stop has been asked for."""
        time.sleep(0 if self._is_set else seconds)
        return self._is_set


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request. SIGINT needs a handler: background jobs inherit it ignored.

    Only the main thread gets signals. In another one, the caller decides what they do.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.set) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def control_folder() -> Iterator[Path]:
    """A private folder for rendezvous files and logs. It is removed at the end, or after a crash by the next run."""
    sweep_stale()
    folder = Path(tempfile.mkdtemp(prefix="wanbench-"))
    try:
        write_mark(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_stale() -> list[Path]:
    """Remove the folders that `stale_folders` lists, and return them."""
    folders = stale_folders()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return folders


def stale_folders() -> list[Path]:
    """Control folders whose owner is gone, without folders of other users and folders without our mark."""
    stale = []
    for folder in Path(tempfile.gettempdir()).glob("wanbench-*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and owner.has_left(folder):
                stale.append(folder)
    return sorted(stale)
