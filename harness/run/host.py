"""Checks of this host before a run, and leftovers of earlier runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from wanbench.harness import testbeds
from wanbench.harness.emulators import choice
from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.process import owner
from wanbench.harness.spec.command import check_there
from wanbench.harness.testbeds.docker.mounts import current
from wanbench.workloads.data.errors import WorkloadError
from wanbench.workloads.registry import check_data


def check_host(cells: Iterable[Cell]) -> None:
    """Refuse cells that cannot run here, before anything is measured.

    Raises:
        HostError: this host cannot run them. SpecError: a command or a data set does not exist.
    """
    cells = list(cells)
    _check_data(cells)
    for testbed in dict.fromkeys(cell.testbed for cell in cells):
        testbeds.check(testbed, {cell.containers.image for cell in cells if cell.testbed == testbed})
    for cell in cells:
        if isinstance(cell, CommandCell):
            _check_command(cell)
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
                f"{available / 2**30:.1f} GiB are available; use fewer workers or a smaller payload_scale"
            )


def _check_data(cells: Iterable[Cell]) -> None:
    """Check that every data set exists in its format, and that containers can see it. Raises: SpecError."""
    trained = {cell.task.model_dump_json(): cell for cell in cells if isinstance(cell, TrainingCell)}
    for cell in trained.values():
        try:
            check_data(cell.task.plain())
        except WorkloadError as error:
            raise SpecError(str(error)) from None
        if testbeds.contained(cell.testbed) and cell.task.data is not None:
            _check_shown(Path(cell.task.data), "workload.data", "that folder")


def _check_command(cell: CommandCell) -> None:
    """Check that the program exists, or that containers can see its folder. Raises: SpecError."""
    if testbeds.contained(cell.testbed):
        _check_shown(cell.folder.resolve(), "workload.command", "its working folder")
    else:
        check_there(cell.command[0], cell.folder, "workload.command: ")


def _check_shown(folder: Path, key: str, what: str) -> None:
    if testbeds.adopted() is not None:
        raise SpecError(f"{key}: containers that already run cannot see {what}")
    current(folder)


def available_bytes() -> int:
    """Memory that programs can still use. Raises: HostError: it is not known."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise HostError("/proc/meminfo: no MemAvailable line; is /proc mounted?")


def stale_folders() -> list[Path]:
    """Control folders whose owner is gone, without folders of other users and folders without our mark."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob("wanbench-*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and owner.has_left(folder):
                found.append(folder)
    return sorted(found)


def sweep_stale() -> list[Path]:
    """Remove the folders that `stale_folders` lists, and return them."""
    found = stale_folders()
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found
