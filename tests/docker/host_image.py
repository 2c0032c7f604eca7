"""An image without anything in it, and the `wanbench` that runs it on this host's own files.

    python tests/docker/host_image.py image NAME         makes the image; needs no registry, and takes no room
    python tests/docker/host_image.py run SPEC ...       `wanbench run SPEC ...`, with the host's system, Python and
                                                         checkout mounted read-only into every container

The tests of how containers behave start in seconds this way, also where there is neither a registry nor room for torch.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc/ld.so.cache")
_CHECKOUT = Path(__file__).resolve().parents[2]


def mounted() -> list[str]:
    """What a container needs of this host to run our Python; nothing below another of them."""
    python = [sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), str(_CHECKOUT)]
    wanted = sorted({path for path in (*_SYSTEM, *python) if Path(path).exists()})
    return [path for path in wanted if not any(path.startswith(f"{other}/") for other in wanted)]


def make(name: str) -> None:
    """Import an image of empty folders under this name."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in ("proc", "sys", "dev", "etc", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
    settings = [f"ENV PATH={Path(sys.executable).parent}:/usr/bin:/bin", f"ENV PYTHONPATH={_CHECKOUT}"]
    changes = [word for setting in settings for word in ("--change", setting)]
    subprocess.run(["docker", "import", *changes, "-", name], input=content.getvalue(), check=True)


def main(arguments: Iterable[str]) -> None:
    """`wanbench` with the host's files in its containers."""
    from docker.types import Mount

    import harness.testbeds.docker as testbed
    from harness.cli import main as wanbench

    product = testbed.host_options

    def host_options(*parts: Any) -> dict[str, Any]:
        made = product(*parts)
        made["mounts"] += [Mount(target=path, source=path, type="bind", read_only=True) for path in mounted()]
        return made

    testbed.host_options = host_options
    wanbench(list(arguments), prog_name="wanbench")


if __name__ == "__main__":
    if sys.argv[1] == "image":
        make(sys.argv[2])
    else:
        main(sys.argv[1:])
