"""Run a command as a user without rights; as root:  python nobody.py COMMAND...

Python can be installed where other users have no access, such as /root. So the command gets a mount namespace in which
they have access.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
_CLONE_NEWNS = 0x20000


def main() -> None:
    assert ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0, "needs root"
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for needed in dict.fromkeys([sys.base_prefix, sys.prefix, *map(os.path.abspath, sys.path)]):
        open_the_way(Path(needed))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/net"], check=True)  # TUN for all, as on most hosts
    os.mknod("/dev/net/tun", stat.S_IFCHR | 0o666, os.makedev(10, 200))
    os.chmod("/dev/net/tun", 0o666)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


def open_the_way(needed: Path) -> None:
    """Let other users pass each folder above this one, without reading those that were closed to them."""
    for folder, child in zip([*needed.parents][::-1], needed.parts[1:], strict=True):
        if not (folder / child).exists() or folder.stat().st_mode & stat.S_IXOTH:
            continue
        inside = os.open(folder / child, os.O_PATH)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder], check=True)
        (folder / child).mkdir()
        source = f"/proc/self/fd/{inside}"
        subprocess.run(["mount", "--no-canonicalize", "--bind", source, folder / child], check=True, pass_fds=[inside])


if __name__ == "__main__":
    main()
