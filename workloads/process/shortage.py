"""What the kernel counts when it holds a process back: throttling by a cgroup, and stalls for lack of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OWN, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_MEMORY_OF_THE_HOST = Path("/proc/pressure/memory")


class Throttling:
    """The time for which the limits of processor time of this process's cgroups held it back."""

    def __init__(self) -> None:
        self._files = [file for folder in _folders("cpu") if (file := folder / "cpu.stat").is_file()]

    def total_ns(self) -> int | None:
        """Since the cgroups exist, summed over processors; None if the kernel does not count it."""
        counts = [count for file in self._files if (count := _throttled_ns(file)) is not None]
        return sum(counts) if counts else None


class Swapping:
    """The time for which some process of this cgroup, or else of the host, waited for memory (PSI)."""

    def __init__(self) -> None:
        own = (file for folder in _folders("memory") if (file := folder / "memory.pressure").is_file())
        self._file = next(own, _MEMORY_OF_THE_HOST)

    def total_ns(self) -> int | None:
        """Since the cgroup exists; None if the kernel does not count it."""
        with suppress(OSError, ValueError, IndexError):
            return int(self._file.read_text().splitlines()[0].rpartition("total=")[2]) * 1000
        return None


def _throttled_ns(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in file.read_text().splitlines())
        if "throttled_usec" in counts:  # version 2
            return int(counts["throttled_usec"]) * 1000
        if "throttled_time" in counts:
            return int(counts["throttled_time"])
    return None


def _folders(controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and those around it, from the inside out, for one controller.

    A container can see its own cgroup as the root, whatever the name that the kernel gives.
    """
    for line in _OWN.read_text().splitlines() if _OWN.exists() else ():
        _, controllers, name = line.split(":", 2)
        if not controllers:
            roots = [_CGROUPS, _CGROUPS / "unified"]
        elif controller in controllers.split(","):
            roots = [_CGROUPS / controllers]
        else:
            continue
        for root in filter(Path.is_dir, roots):
            inside = root / name.lstrip("/")
            while inside != root:
                if inside.is_dir():
                    yield inside
                inside = inside.parent
            yield root
