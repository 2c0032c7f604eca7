"""The environment of a run: machine, kernel, versions, code."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wanbench.harness.errors import HostError, masked
from wanbench.harness.plan.cell import Cell, CommandCell, TrainingCell
from wanbench.harness.process.apart import call
from wanbench.harness.process.git import git
from wanbench.harness.spec.command import files
from wanbench.harness.testbeds import simulated
from wanbench.workloads.registry import data_digest

_ROOT = Path(__file__).resolve().parents[2]
# Code that influences a measurement. Code that draws or prints does not.
_MEASURING = (
    "workloads/**/*.py",
    "netprofiles/*.py",
    "harness/emulators/**/*.py",
    "harness/testbeds/**/*.py",
    "harness/timeline/*.py",
    "harness/rep/*.py",
    "harness/results/row.py",
)
_GIT_S = 5.0  # a folder on a slow network must not hold up a run
_VERSIONS = ("wanbench", "torch", "numpy", "pandas", "matplotlib", "pyroute2", "greenlet")


@lru_cache(maxsize=1)
def _own_hash() -> str:
    digest = hashlib.sha256(version("torch").encode())
    for pattern in _MEASURING:
        for path in sorted(_ROOT.glob(pattern)):
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def code_hash(cell: Cell) -> str:
    """Hash of the code that measures a cell: ours, torch's version, and the user's algorithm or model file.

    For a command, it covers all files that the command names; for a workload, data that differ between hosts.
    """
    digest = hashlib.sha256(_own_hash().encode())
    if isinstance(cell, CommandCell):
        for path in own_files(cell):
            digest.update(_content(path, path.stat().st_mtime_ns, path.stat().st_size))
    elif isinstance(cell, TrainingCell):
        digest.update((data_digest(cell.task.plain()) or "").encode())
        for path in own_files(cell):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def own_files(cell: Cell) -> list[Path]:
    """The user's files that a cell depends on: those that its command names, or of its algorithm and its model."""
    if isinstance(cell, CommandCell):
        return files(cell.command, cell.folder)
    assert isinstance(cell, TrainingCell)
    named = [name for name in (cell.kind, cell.task.model or "") if ":" in name]
    return [Path(file) for file in (call(repr(name), _file_of, name) for name in named) if file is not None]


def own_code(cells: Iterable[Cell]) -> dict[str, str]:
    """Digests of the user's files that cells depend on, by path; without interpreters and wanbench's own files."""
    others = [Path(path) for path in ("/usr", "/bin", sys.prefix, sys.base_prefix)]
    found: dict[str, str] = {}
    for cell in cells:
        apart = others if isinstance(cell, CommandCell) else []
        for path in own_files(cell):
            named = path.absolute()
            if not any(map(named.is_relative_to, apart)) and not named.resolve().is_relative_to(_ROOT / "workloads"):
                found[os.path.relpath(path)] = _content(path, path.stat().st_mtime_ns, path.stat().st_size).hex()[:12]
    return dict(sorted(found.items()))


def _file_of(name: str) -> str | None:
    """The file of "module:name". Finding it can import the packages that it is in."""
    found = importlib.util.find_spec(name.partition(":")[0])
    return found.origin if found is not None and found.has_location else None


@lru_cache(maxsize=256)
def _content(path: Path, mtime_ns: int, size: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def manifest(cells: Iterable[Cell]) -> dict[str, Any]:
    """Facts about this host and this program, stored in the run folder."""
    return {
        "schema": 1,
        "argv": [*map(masked, sys.argv)],
        "versions": {name: version(name) for name in _VERSIONS},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "git": _revision(_ROOT, "--abbrev=12"),
        "project": _revision(Path(), "--abbrev=40", "--exclude=*"),
        "tcp_congestion_of_host": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "code": sorted({code_hash(cell) for cell in cells}),
    }


def host_facts(cell: Cell) -> dict[str, str | None]:
    """The columns of a row that name this host; none if the cell is simulated, because its results repeat anywhere."""
    return {} if simulated(cell.testbed) else _host_facts()


def this_host() -> str:
    """The name of this host in rows."""
    return str(_host_facts()["host"])


@lru_cache(maxsize=1)
def _host_facts() -> dict[str, str | None]:
    name = host_name(os.uname().nodename, _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id"))
    return {"host": name, "kernel": platform.release(), "cpu": cpu_model()}


def host_name(node: str, machine_id: str | None) -> str:
    """A readable name of a host that stays the same, such as "gpu7-3f9a1c"; without a machine id, its own name.

    The machine id itself must not be published (man 5 machine-id), so it is hashed with a key of ours.
    """
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", node).strip("-.") or "host"
    if not machine_id:
        return readable
    return f"{readable}-{hmac.digest(b'wanbench', machine_id.encode(), 'sha256').hex()[:6]}"


def cpu_model() -> str | None:
    """The name of the processor in /proc/cpuinfo."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _revision(folder: Path, *options: str) -> str | None:
    """The revision of a folder, followed by -dirty if files differ; None outside a checkout or without git."""
    try:
        named = git("describe", "--always", *options, cwd=folder, timeout_s=_GIT_S)
        # `describe --dirty` would write the index.
        changed = git("status", "--porcelain", "--untracked-files=no", cwd=folder, timeout_s=_GIT_S)
    except (OSError, HostError, subprocess.TimeoutExpired):
        return None
    return f"{named}-dirty" if changed else named


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
