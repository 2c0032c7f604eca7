"""wanbench installed as users have it: from a wheel, in an environment of its own, without a checkout on any path."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("PYTHONPATH", "PYTEST_ADDOPTS")  # of these tests' own run


def build_wheel(folder: Path) -> Path:
    """The wheel that `pip wheel .` makes."""
    _quietly(sys.executable, "-m", "pip", "wheel", "-w", folder, "--no-deps", "--no-build-isolation", ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_editable_wheel(folder: Path) -> Path:
    """The wheel behind `pip install -e .`: it leads to the checkout."""
    _quietly(sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a wheel in it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> Environment:
        """Everything but wanbench is borrowed from the environment of the tests: torch is large."""
        made = cls(folder)
        _quietly(sys.executable, "-m", "venv", "--without-pip", folder)
        pip = [sys.executable, "-m", "pip", "--python", made.program("python")]
        _quietly(*pip, "install", "--no-deps", "--no-index", wheel)
        (site,) = folder.glob("lib/python3*/site-packages")
        # Paths in there are not followed, so an editable wanbench of the tests' own environment is not borrowed.
        borrowed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
        return made

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, cwd: Path, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """What one of its programs does in a folder; with nothing of these tests on its path."""
        inherited = {key: value for key, value in os.environ.items() if key not in _OURS}
        return subprocess.run(
            [self.program(name), *arguments],
            cwd=cwd,
            env={**inherited, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


def _quietly(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
