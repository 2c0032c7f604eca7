"""What this host can do, and what an earlier run may have left on it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.process import owner
from wanbench.harness.spec.command import check_there
from wanbench.harness.testbeds.docker.mounts import current
from wanbench.workloads.data.errors import WorkloadError
from wanbench.workloads.registry import check_data

_OWNER = "owner.json"
_WORKER_BYTES = 120 << 20  # private memory of a worker beside its vectors, generous
_PROGRAM_BYTES = 16 << 20  # of an interpreter without anything
_SIMULATED_BYTES = 256 << 10  # of a simulated worker: its stack, its rows, its share of a round of messages
_VECTORS = 4  # parameters, momentum, gradient, accumulator


def check_host(cells: Iterable[Cell]) -> None:
    """Refuse early, in one line, what cannot work.

    Raises:
        HostError: this host cannot do it. SpecError: a command or a data set is not there.
    """
    cells = list(cells)
    _check_data(cells)
    emulated = [cell for cell in cells if cell.config["testbed"] != "virtual"]
    for testbed in dict.fromkeys(cell.config["testbed"] for cell in emulated):
        mine = [cell for cell in emulated if cell.config["testbed"] == testbed]
        testbeds.check(testbed, {cell.config.get("containers", {}).get("image") for cell in mine})
    for cell in emulated:
        if cell.is_command:
            _check_command(cell)
    kinds = [(cell.config["emulator"], cell.config["testbed"]) for cell in emulated if cell.workers > 1]
    for emulator, testbed in dict.fromkeys(kinds):
        try:
            choice.check(emulator, testbed)
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


def _check_data(cells: Iterable[Cell]) -> None:
    """Every data set is there and in its format, and can be shown to containers."""
    workloads = {json.dumps(c.config["workload"], sort_keys=True): c for c in cells if not c.is_command}
    for cell in workloads.values():
        try:
            check_data(cell.config["workload"])
        except WorkloadError as error:
            raise SpecError(str(error)) from None
        if cell.config["testbed"] == "docker" and "data" in cell.config["workload"]:
            if testbeds.adopted() is not None:
                raise SpecError("workload.data: containers that are there already do not see that folder")
            current(Path(cell.config["workload"]["data"]))


def _check_command(cell: Cell) -> None:
    """The program is there, or its folder can be shown to containers."""
    if cell.config["testbed"] == "netns":
        check_there(cell.config["workload"]["command"][0], cell.folder, "workload.command: ")
    elif testbeds.adopted() is not None:
        raise SpecError("workload.command: containers that are there already do not see the folder that it runs in")
    else:
        current(cell.folder.resolve())


def memory_bytes(cell: Cell) -> int:
    """Memory that a cell's workers need: vectors, and two copies of every message in flight and of the next."""
    if cell.is_command:  # and what it makes for itself, which only it knows
        processes: int = cell.config["workload"]["nproc_per_worker"]
        return cell.workers * (_WORKER_BYTES + processes * _PROGRAM_BYTES)
    inputs, algorithm = cell.law_inputs(), cell.algorithm()
    model = cell.workload().message_bytes
    if cell.config["testbed"] == "virtual":
        vectors = (_VECTORS + (algorithm.in_flight + 1) * inputs.messages) * model if cell.workload().learns else 0
        return cell.workers * (_SIMULATED_BYTES + vectors)
    in_flight = (algorithm.in_flight + 1) * 2 * inputs.messages * model
    return cell.workers * (_WORKER_BYTES + _VECTORS * model + in_flight)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise HostError("/proc/meminfo: no MemAvailable line; is /proc mounted?")


def write_owner(folder: Path) -> None:
    """Mark a control folder as this process's."""
    (folder / _OWNER).write_text(json.dumps(owner.mark()))


def stale_folders() -> list[Path]:
    """Control folders whose owner is gone. Others' folders, and those without our mark, are left alone."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob("wanbench-*"):
        try:
            # What somebody else has put there, such as a pipe, is not even opened.
            if folder.lstat().st_uid != os.geteuid() or not stat.S_ISREG((folder / _OWNER).lstat().st_mode):
                continue
            if owner.is_gone(json.loads((folder / _OWNER).read_text())):
                found.append(folder)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found)


def sweep_stale() -> list[Path]:
    """Remove what `stale_folders` lists."""
    found = stale_folders()
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found
