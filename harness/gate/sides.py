"""Base and head: a result folder, a git revision, an image, or the current working folder.

A revision is checked out into its own folder, which borrows the objects of the repository. Nothing is written to the
repository, so nothing is left in it, even after a crash.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.gate.git import git
from wanbench.harness.results.store import RunFolder, open_run

IMAGE = "image:"
HERE = "."
WORKING = "the working folder"


class NoBase(Exception):
    """A revision cannot be found for lack of git or because the clone is shallow, which is not an error of the user."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        role: "base" or "head". title: a readable description.
        recorded: its results if they already exist; else it is measured.
        folder, python: working folder and interpreter for measuring.
        path: entries at the front of PYTHONPATH. assignments: changes of the spec, in the form of `--set`.
        same: equal for two sides that run the same code.
    """

    role: str
    title: str
    recorded: RunFolder | None = None
    folder: Path = field(default_factory=Path.cwd)
    python: str = sys.executable
    path: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    same: str = ""


def recorded(role: str, source: str, out: Path) -> Side | None:
    """The side if `source` is a run folder or the name of one under `out`, else None."""
    if source == HERE or not any((p / "manifest.json").is_file() for p in (Path(source), out / source)):
        return None
    folder = open_run(source, out)
    return Side(role, str(folder.path), recorded=folder)


@contextmanager
def opened(role: str, source: str, setup: Sequence[str], scratch: Path) -> Iterator[Side]:
    """Yield a side to measure. A checkout is kept in `scratch` until the end.

    Args:
        source: a git revision, `image:NAME`, or `.`.
        setup: shell commands to run in a checkout.

    Raises:
        NoBase: git is not installed, or a shallow clone lacks the revision.
        SpecError: there is no such revision or no repository.
        HostError: git refuses, or `setup` fails.
    """
    if source == HERE:
        yield working_folder(role)
        return
    if source.startswith(IMAGE):
        image = source.removeprefix(IMAGE)
        yield Side(role, source, assignments=("run.testbed=docker", f"containers.image={image}"),
                   same=source)  # fmt: skip
        return
    top, revision = _resolved(role, source)
    folder = scratch / role
    try:
        _check_out(top, revision, folder)
        _set_up(role, source, setup, folder)
        inside = Path.cwd().resolve().relative_to(top)
        yield replace(_checkout_side(role, f"{source} ({revision[:9]})", folder, inside), same=revision)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def working_folder(role: str) -> Side:
    """The files as they are, with the interpreter that runs this."""
    here = Path.cwd()
    return Side(role, WORKING, path=(str(here),) if _is_wanbench(here) else (), same=WORKING)


def _is_wanbench(folder: Path) -> bool:
    return (folder / "wanbench" / "harness" / "cli" / "__init__.py").is_file()


def _checkout_side(role: str, title: str, folder: Path, inside: Path) -> Side:
    """A checkout that uses its own environment if `setup` made one, and its own wanbench if it contains one."""
    python = folder / ".venv" / "bin" / "python"
    return Side(
        role,
        title,
        folder=folder / inside if (folder / inside).is_dir() else folder,
        python=str(python) if python.is_file() else sys.executable,
        path=(str(folder),) if _is_wanbench(folder) else (),
    )


def _resolved(role: str, source: str) -> tuple[Path, str]:
    """(top of the repository, full hash) of a revision, relative to the working folder."""
    if shutil.which("git") is None:
        raise NoBase(f"--{role} {source}: not a run folder, and finding a revision needs git; install it")
    try:
        top = Path(git("rev-parse", "--show-toplevel")).resolve()
    except HostError as error:
        raise SpecError(f"--{role} {source}: neither a run folder nor a revision: {error}") from None
    try:
        return top, git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{source}^{{commit}}")
    except HostError:
        if git("rev-parse", "--is-shallow-repository") == "true":
            fetch = f"git fetch --depth=1 origin {source.removeprefix('origin/')}"
            raise NoBase(
                f"--{role} {source}: no such revision in this shallow clone; fetch it with `{fetch}`"
            ) from None
        expected = "expected a run folder, a git revision, image:NAME, or ."
        raise SpecError(f"--{role} {source}: no such run folder or revision; {expected}") from None


def _check_out(top: Path, revision: str, folder: Path) -> None:
    """Check out a revision into a repository that borrows all objects from the one at `top`."""
    objects = (top / git("rev-parse", "--git-path", "objects", cwd=top)).resolve()
    shallow = (top / git("rev-parse", "--git-path", "shallow", cwd=top)).resolve()
    git("init", "--quiet", "--template=", str(folder), cwd=top)
    (folder / ".git" / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    if shallow.is_file():
        shutil.copy(shallow, folder / ".git" / "shallow")
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", revision, cwd=folder)


def _set_up(role: str, source: str, setup: Sequence[str], folder: Path) -> None:
    for command in setup:
        print(f"{role}: {command}", file=sys.stderr, flush=True)
        done = subprocess.run(["sh", "-c", command], cwd=folder, stdout=sys.stderr, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise HostError(f"--{role} {source}: gate.setup: `{command}` ended with status {done.returncode}")
