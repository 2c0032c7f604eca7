"""The part of wanbench that runs in containers. It is mounted, read-only, so any image with Python and torch works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docker.types import Mount

import wanbench

_THERE = Path("/wanbench")
_START = (
    "import os, runpy, sys; "
    f"sys.path.append('{_THERE}'); "
    f"os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [os.environ.get('PYTHONPATH'), '{_THERE}'])); "
    "runpy.run_module('wanbench.workloads.process.container', run_name='__main__', alter_sys=True)"
)
ENTRYPOINT = ("python3", "-c", _START)  # the image's own modules come first


def mounts() -> Iterator[Mount]:
    """Yield the mounts of the package and, in a checkout, of the folders to which its links lead."""
    package = Path(wanbench.__file__).resolve().parent
    yield _mount(package, _THERE / "wanbench")
    for name in ("workloads", "netprofiles"):
        if (package / name).is_symlink():
            yield _mount((package / name).resolve(), _THERE / name)


def _mount(source: Path, target: Path) -> Mount:
    return Mount(target=str(target), source=str(source), type="bind", read_only=True)
