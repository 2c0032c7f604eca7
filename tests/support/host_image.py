"""An empty image, and a `wanbench` that runs it with the files of this host.

    python tests/support/host_image.py SPEC ...          `wanbench SPEC ...`, with the host's system, Python and
                                                         checkout mounted read-only into every container

So tests of containers start in seconds, even without a registry, and without room for torch.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker.types import Mount

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc/ld.so.cache")
CHECKOUT = Path(__file__).resolve().parents[2]
PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def mounted() -> list[str]:
    """Return the folders of this host that a container needs to run our Python; none is inside another."""
    python = [sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), str(CHECKOUT)]
    wanted = sorted({path for path in (*_SYSTEM, *python) if Path(path).exists()})
    return [path for path in wanted if not any(path.startswith(f"{other}/") for other in wanted)]


def make(
    api: Any,
    name: str,
    *,
    folders: Mapping[str, Path] | None = None,
    path: str = PATH,
    python_path: str = str(CHECKOUT),
) -> None:
    """Import an image with empty folders and these, under this name."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in ("proc", "sys", "dev", "etc", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for folder, source in (folders or {}).items():
            tar.add(source, folder)
    changes = [f"ENV PATH={path}", f"ENV PYTHONPATH={python_path}"]
    api.import_image_from_data(content.getvalue(), repository=name, changes=changes)


def share() -> None:
    """Let the containers that this process starts see the host's files."""
    import wanbench.harness.testbeds.docker.testbed as testbed

    product = testbed.host_options

    def host_options(*parts: Any) -> dict[str, Any]:
        made = product(*parts)
        made["mounts"] += [Mount(target=path, source=path, type="bind", read_only=True) for path in mounted()]
        return made

    testbed.host_options = host_options


def main() -> None:
    """Run `wanbench` with the host's files in its containers."""
    from wanbench.harness.cli import main as wanbench

    share()
    wanbench(prog_name="wanbench")


if __name__ == "__main__":
    main()
