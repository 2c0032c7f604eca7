"""Run git in the repository of a test, as somebody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHO = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Return what it prints."""
    done = subprocess.run(["git", *arguments], cwd=folder, env=os.environ | WHO, capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()
