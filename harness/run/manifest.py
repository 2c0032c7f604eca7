"""The environment of a run: machine, kernel, versions, code."""

import hmac
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wanbench.harness.errors import HostError, masked
from wanbench.harness.plan.cell import Cell
from wanbench.harness.process import apart
from wanbench.harness.process.git import git
from wanbench.harness.rep.sources import digest, sources_before
from wanbench.harness.spec.command import files
from wanbench.harness.testbeds import simulated
from wanbench.workloads.imported import is_users

_ROOT = Path(__file__).resolve().parents[2]
_GIT_S = 5.0  # a folder on a slow network must not hold up a run
_VERSIONS = ("wanbench", "torch", "numpy", "pandas", "matplotlib", "pyroute2", "greenlet")


def code_of(cells: Sequence[Cell]) -> dict[str, str]:
    """Digests by name of the code and the data that cells depend on, as far as they are known before a repetition."""
    digests = own_code(cells)
    for cell in cells:
        digests |= sources_before(cell.inputs)
    return digests


def differs(cells: Sequence[Cell], code: Mapping[str, str]) -> str | None:
    """The first part of another process's `code_of` that this host has in another version; None if it has none."""
    here = code_of(cells)
    return next((name for name, digest in code.items() if here.get(name, digest) != digest), None)


def own_code(cells: Sequence[Cell]) -> dict[str, str]:
    """Digests of the user's files that cells depend on, by path: all modules that a model or an algorithm imports.

    Of a command, the files that it names, without interpreters: its imports are known when it has run (`rep.sources`).
    """
    named = {path for cell in cells for path in files(cell.inputs.command, cell.inputs.folder)}
    digests = {os.path.relpath(path): digest(path) for path in named if is_users(str(path))}
    for name in {name for cell in cells for name in cell.users_names}:
        apart.call(repr(name), _import, name.partition(":")[0])
        digests |= {os.path.relpath(path): digest(Path(path)) for _, path, _ in apart.modules()}
    return dict(sorted(digests.items()))


def _import(module: str) -> None:
    import_module(module)


def manifest(cells: Sequence[Cell]) -> dict[str, Any]:
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
        "tcp_congestion_of_host": content("/proc/sys/net/ipv4/tcp_congestion_control"),
        "code": code_of(cells),
    }


def host_facts(cell: Cell) -> dict[str, str | None]:
    """The columns of a row that name this host; none if the cell is simulated, because its results repeat anywhere."""
    return {} if simulated(cell.testbed) else _host_facts()


def this_host() -> str:
    """The name of this host in rows."""
    return str(_host_facts()["host"])


@lru_cache(maxsize=1)
def _host_facts() -> dict[str, str | None]:
    name = host_name(os.uname().nodename, content("/etc/machine-id") or content("/var/lib/dbus/machine-id"))
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
    line = re.search(r"^model name.*?:(.*)", content("/proc/cpuinfo") or "", re.MULTILINE)
    return line[1].strip() if line else None


def _revision(folder: Path, *options: str) -> str | None:
    """The revision of a folder, followed by -dirty if files differ; None outside a checkout or without git."""
    try:
        named = git("describe", "--always", *options, cwd=folder, timeout_s=_GIT_S)
        # `describe --dirty` would write the index.
        changed = git("status", "--porcelain", "--untracked-files=no", cwd=folder, timeout_s=_GIT_S)
    except (OSError, HostError, subprocess.TimeoutExpired):
        return None
    return f"{named}-dirty" if changed else named


def content(path: str) -> str | None:
    """The content of a small file; None if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
