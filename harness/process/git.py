"""git as in a shell of the user's: in a hook it is not led to the commit under way, and it changes no index.

git passes variables such as GIT_INDEX_FILE to its hooks. With them, a command in another folder reads and writes the
index of the commit that the hook belongs to.
"""

import os
import subprocess
from functools import lru_cache
from pathlib import Path

from wanbench.harness.errors import HostError


@lru_cache(maxsize=1)
def _local_variables() -> frozenset[str]:
    """The variables that belong to one repository, as git names them; none without git."""
    try:
        bare = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # a wrong one stops git
        done = subprocess.run(["git", "rev-parse", "--local-env-vars"], env=bare, capture_output=True, text=True)
    except OSError:
        return frozenset()
    return frozenset(done.stdout.split())


def environment() -> dict[str, str]:
    """This process's environment for git, and for programs that may run it in another folder."""
    return {
        **{key: value for key, value in os.environ.items() if key not in _local_variables()},
        "GIT_OPTIONAL_LOCKS": "0",  # else `git status` writes the index to save time later
    }


def git(*arguments: str, cwd: Path | None = None, timeout_s: float | None = None) -> str:
    """Run git and return its output.

    Raises:
        HostError: with the message of git. OSError: there is no git. subprocess.TimeoutExpired: it took too long.
    """
    done = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )
    out, said = (stream.decode(errors="replace").strip() for stream in (done.stdout, done.stderr))
    if done.returncode:
        raise HostError(f"git {arguments[0]}: {said or f'status {done.returncode}'}")
    return out
