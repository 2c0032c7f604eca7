"""git as in a shell of the user's: in a hook it is not led to the commit under way, and it changes no index.

git passes variables such as GIT_INDEX_FILE to its hooks. With them, a command in another folder reads and writes the
index of the commit that the hook belongs to.
"""

import os
import subprocess
from pathlib import Path

from wanbench.harness.errors import HostError

# Those of one repository, as `git rev-parse --local-env-vars` names them; GIT_INTERNAL_SUPER_PREFIX until 2.41.
_LOCAL = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
}


def environment() -> dict[str, str]:
    """This process's environment for git, and for programs that may run it in another folder."""
    return {
        **{key: value for key, value in os.environ.items() if key not in _LOCAL},
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
