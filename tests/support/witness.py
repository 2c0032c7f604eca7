"""Read and change the queues of a netem network independently: with tc, in the emulator's namespaces."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

HAS = {"paths": "bfifo 110:", "delays": "netem 110:", "downs": "bfifo 101:"}


class Witness:
    """Run commands in the namespaces of an emulator's routers; their devices distinguish the stages."""

    def __init__(self, pid: int) -> None:
        self._fds = [path for path in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("net:[")]

    def run(self, stage: str, device: str, *command: str) -> str:
        """Return the output of a command in the namespace of this stage."""
        for fd in self._fds:
            shown = self._run(fd, "tc", "qdisc", "show", "dev", device)
            if re.search(rf"{HAS[stage].replace('110', '11[01]')}", shown or ""):
                return self._run(fd, *command, check=True) or ""
        raise AssertionError(f"no namespace has {HAS[stage]} on {device}")

    def qdiscs(self, stage: str, device: str) -> str:
        return self.run(stage, device, "tc", "-s", "qdisc", "show", "dev", device)

    def classes(self, stage: str, device: str) -> str:
        return self.run(stage, device, "tc", "class", "show", "dev", device)

    def change_leaf(self, stage: str, device: str, minor: int, *values: str) -> None:
        """Replace the values of the leaf of a class."""
        place = f"parent 1:{minor:x} handle {0x100 + minor:x}:".split()
        self.run(stage, device, "tc", "qdisc", "change", "dev", device, *place, *values)

    def change_class(self, stage: str, device: str, minor: int, *values: str) -> None:
        """Replace the values of a class."""
        place = f"parent 1: classid 1:{minor:x} htb".split()
        self.run(stage, device, "tc", "class", "change", "dev", device, *place, *values)

    @staticmethod
    def _run(fd: Path, *command: str, check: bool = False) -> str | None:
        done = subprocess.run(["nsenter", f"--net={fd}", *command], capture_output=True, text=True)
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout
