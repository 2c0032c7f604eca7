"""wanbench installed as users have it: from a wheel, in a separate environment, without a checkout on any path."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("PYTHONPATH", "PYTEST_ADDOPTS")  # set for these tests


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Return the wheel that `pip wheel SOURCE` makes from the repository, or from a source distribution."""
    _quietly(sys.executable, "-m", "pip", "wheel", "-w", folder, "--no-deps", "--no-build-isolation", source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_sdist(folder: Path) -> Path:
    """Return the source distribution that a release publishes."""
    _quietly(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def check_upload(*distributions: Path) -> None:
    """Check that PyPI would take these distributions and render their description."""
    _quietly(sys.executable, "-m", "twine", "check", "--strict", *distributions)


def build_editable_wheel(folder: Path) -> Path:
    """Return the wheel behind `pip install -e .`, which leads to the checkout."""
    _quietly(sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a wheel in it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> Environment:
        """Create it; everything but wanbench is borrowed from the environment of the tests, because torch is large."""
        made = cls(folder)
        _quietly(sys.executable, "-m", "venv", "--without-pip", folder)
        pip = [sys.executable, "-m", "pip", "--python", made.program("python")]
        _quietly(*pip, "install", "--no-deps", "--no-index", wheel)
        (site,) = folder.glob("lib/python3*/site-packages")
        # A .pth file in a borrowed folder has no effect, so an editable wanbench there is not borrowed.
        borrowed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
        return made

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, cwd: Path, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in a folder, with nothing of these tests on its path."""
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
