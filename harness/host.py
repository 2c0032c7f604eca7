"""What this host can do, and what an earlier run may have left on it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness import testbeds
from harness.cells import Cell
from harness.emulators import choice
from harness.errors import HostError

_OWNER = "owner.json"
_WORKER_BYTES = 120 << 20  # private memory of a worker beside its vectors, generous
_SIMULATED_BYTES = 256 << 10  # of a simulated worker: its stack, its rows, its share of a round of messages
_VECTORS = 4  # parameters, momentum, gradient, accumulator


def check_host(cells: Iterable[Cell]) -> None:
    """Refuse early, in one line, what cannot work. Raises: HostError."""
    cells = list(cells)
    emulated = [cell for cell in cells if cell.config["testbed"] != "virtual"]
    try:
        for emulator in dict.fromkeys(cell.config["emulator"] for cell in emulated if cell.workers > 1):
            choice.check(emulator)
        for testbed in dict.fromkeys(cell.config["testbed"] for cell in emulated):
            testbeds.check(testbed)
    except HostError as error:
        raise HostError(f"{error} (`--testbed virtual` simulates this)") from None
    available = _available_bytes()
    for cell in cells:
        needed = memory_bytes(cell)
        if needed > available:
            raise HostError(
                f"{cell.title.strip()}: needs about {needed / 2**30:.1f} GiB for {cell.workers} workers, "
                f"{available / 2**30:.1f} GiB are available; use fewer workers or a smaller payload_scale"
            )


def memory_bytes(cell: Cell) -> int:
    """Memory that a cell's workers need: vectors, and two copies of every message in flight and of the next."""
    inputs, algorithm = cell.law_inputs(), cell.algorithm()
    model = cell.workload().message_bytes
    if cell.config["testbed"] == "virtual":
        vectors = (_VECTORS + (algorithm.in_flight + 1) * inputs.messages) * model if cell.workload().learns else 0
        return cell.workers * (_SIMULATED_BYTES + vectors)
    in_flight = (algorithm.in_flight + 1) * 2 * inputs.messages * inputs.message_bytes
    return cell.workers * (_WORKER_BYTES + _VECTORS * model + in_flight)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise HostError("/proc/meminfo: no MemAvailable line; is /proc mounted?")


def write_owner(folder: Path) -> None:
    """Mark a control folder as this process's."""
    owner = {"pid": os.getpid(), "started": _start_time(os.getpid()), "seen_from": _seen_from()}
    (folder / _OWNER).write_text(json.dumps(owner))


def stale_folders() -> list[Path]:
    """Control folders whose owner is gone. Others' folders, and those without our mark, are left alone.

    So are those of another boot or PID namespace: a container, or a guest kernel on the same file system, cannot see
    whether their owner lives.
    """
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"wanbench-*/{_OWNER}"):
        try:
            owner = json.loads(path.read_text())
            gone = owner["seen_from"] == _seen_from() and _start_time(owner["pid"]) != owner["started"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if gone and path.stat().st_uid == os.geteuid():
            found.append(path.parent)
    return sorted(found)


def sweep_stale() -> list[Path]:
    """Remove what `stale_folders` lists."""
    found = stale_folders()
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _start_time(pid: int) -> int | None:
    """Boot-relative start of a process, None if there is none: tells a reused pid from the old process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _seen_from() -> str:
    """Where a PID means the same process: this boot of this kernel, and this PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
