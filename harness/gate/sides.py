"""Base and head: a result folder, a git revision, an image, or the current working folder.

A revision is checked out into its own folder, which borrows the objects of the repository. Nothing is written to the
repository, so nothing is left in it, even after a crash.

A side runs its own files, and that is proved, or nothing is compared: `own/sitecustomize.py` leads its imports to them,
and records them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.process.git import environment, git
from wanbench.harness.results.store import RunFolder, open_run

HOOK = Path(__file__).parent / "own"


class OtherFiles(Exception):
    """A side ran files that are not its own, or it cannot be known. The message is one line."""


@dataclass(frozen=True)
class OwnFiles:
    """The files of a side.

    Attributes:
        root: its checkout. others: the other checkouts of the repository. All are real paths.
    """

    root: str
    other_roots: tuple[str, ...]

    def environment(self, record: Path) -> dict[str, str]:
        """The variable for `own/sitecustomize.py`, which writes the record."""
        return {"WAN_OWN_FILES": json.dumps([self.root, self.other_roots, str(record)])}

    def copied(self, path: Path) -> Path:
        """The copy, at its place in this checkout, of a file of another one; any other file itself."""
        copy = self._in_checkout(path)
        if copy != path:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        return copy

    def code(self, files: Iterable[str]) -> dict[str, str]:
        """Digests of these files as this side has them, by their path in the checkout, or their own if in none."""
        digests = {}
        for file in files:
            path = self._in_checkout(Path(os.path.realpath(file)))
            if path.is_file():
                name = os.path.relpath(path, self.root) if path.is_relative_to(self.root) else file
                digests[name] = sha256(path.read_bytes()).hexdigest()[:12]
        return digests

    def prove(self, role: str, record: Path, scripts: Iterable[Path]) -> dict[str, str]:
        """Digests of the modules of a record, and of these scripts of commands, by path in the checkout.

        Raises:
            OtherFiles: one of them is a file of another checkout, or there is no record.
        """
        if not record.is_file():
            raise OtherFiles(
                f"whose files the {role} ran is not known: its Python wrote no record of imports ({record})"
            )
        modules = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        files = sorted({*modules, *map(os.path.realpath, scripts)})
        for file in files:
            top = self._checkout(file)
            if top is not None and top != self.root and not _ignored(Path(file)):
                raise OtherFiles(
                    f"the {role} did not run its own files: {file} in place of {self.root}{file.removeprefix(top)}; "
                    "commit what is new, name scripts relative to the spec, and build in gate.setup what must be built"
                )

        return self.code(file for file in files if self._checkout(file) == self.root)

    def _in_checkout(self, path: Path) -> Path:
        """The place in this checkout of a file of any checkout; any other file itself."""
        top = self._checkout(str(path))
        return path if top is None else Path(self.root, path.relative_to(top))

    def _checkout(self, file: str) -> str | None:
        tops = sorted((self.root, *self.other_roots), key=len, reverse=True)
        return next((top for top in tops if file.startswith(f"{top}/")), None)


def _ignored(file: Path) -> bool:
    """Whether git ignores a file, as it does what was built or installed beside the sources."""
    return bool(git("ls-files", "--others", "--ignored", "--exclude-standard", "--", file.name, cwd=file.parent))


IMAGE = "image:"
HERE = "."
WORKING = "the working folder, staged or not"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        role: "base" or "head". title: a readable description.
        recorded: its results if they already exist; else it is measured.
        folder, python: working folder and interpreter for measuring.
        path: entries at the front of PYTHONPATH. assignments: changes of the spec, in the form of `--set`.
        same: equal for two sides with the same files.
        own: its checkout; None for an image, and outside a repository.
    """

    role: str
    title: str
    recorded: RunFolder | None = None
    folder: Path = field(default_factory=Path.cwd)
    python: str = sys.executable
    path: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    same: str = ""
    own: OwnFiles | None = None


def recorded(role: str, source: str, out: Path) -> Side | None:
    """The side if `source` is a run folder or the name of one under `out`, else None."""
    if source == HERE or not any((p / "manifest.json").is_file() for p in (Path(source), out / source)):
        return None
    folder = open_run(source, out)
    return Side(role, str(folder.path), recorded=folder, same=str(folder.path.resolve()))


@contextmanager
def opened(role: str, source: str, setup: Sequence[str], scratch: Path, out: Path = Path("results")) -> Iterator[Side]:
    """Yield a side to measure. A checkout is kept in `scratch` until the end.

    Args:
        source: a git revision, `image:NAME`, or `.`.
        setup: shell commands to run in a checkout.
        out: where results go; new files there are no change of the working folder.

    Raises:
        SpecError: there is no such revision or no repository.
        HostError: git is not installed or refuses, a shallow clone lacks the revision, or `setup` fails.
    """
    if source.startswith(IMAGE):
        image = source.removeprefix(IMAGE)
        yield Side(role, source, assignments=("run.testbed=docker", f"containers.image={image}"), same=source)
        return
    if source == HERE:
        yield _working_tree(role, scratch, out.resolve())
        return
    top, revision = _resolved(role, source)
    folder = scratch / role
    try:
        _check_out(top, revision, folder)
        _set_up(role, source, setup, folder)
        inside = Path.cwd().resolve().relative_to(top)
        side = _checkout_side(role, f"{source} ({revision[:9]})", folder, inside)
        tree = git("rev-parse", f"{revision}^{{tree}}", cwd=top)
        yield replace(side, same=tree, own=_own_files(folder, top, scratch))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _working_tree(role: str, scratch: Path, out: Path) -> Side:
    """The working folder, as a side with the files of its repository if it is in one."""
    side = working_folder(role)
    try:
        top = Path(git("rev-parse", "--show-toplevel")).resolve()
        tree = git("rev-parse", "HEAD^{tree}")
        listed = git("status", "--porcelain", "-z", "--untracked-files=all", cwd=top).split("\0")
    except (HostError, OSError):
        return side
    changed = any(line and not (top / line[3:]).is_relative_to(out) for line in listed)
    return replace(side, same=side.same if changed else tree, own=_own_files(top, top, scratch))


def _own_files(root: Path, top: Path, scratch: Path) -> OwnFiles:
    """The files of the checkout `root` of the repository at `top`; the others are its worktrees and both sides."""
    listed = git("worktree", "list", "--porcelain", cwd=top).splitlines()
    roots = [Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")]
    roots += [scratch / "base", scratch / "head"]
    own = os.path.realpath(root)
    return OwnFiles(own, tuple(path for path in map(os.path.realpath, roots) if path != own))


def working_folder(role: str) -> Side:
    """The working folder as it is, with the interpreter that runs this process."""
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
        raise HostError(f"--{role} {source}: not a run folder, and finding a revision needs git; install it")
    try:
        top = Path(git("rev-parse", "--show-toplevel")).resolve()
    except HostError as error:
        raise SpecError(f"--{role} {source}: neither a run folder nor a revision: {error}") from None
    try:
        return top, git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{source}^{{commit}}")
    except HostError:
        if git("rev-parse", "--is-shallow-repository") == "true":
            raise HostError(
                f"--{role} {source}: no such revision in this shallow clone; set fetch-depth: 0 in the workflow, or "
                f"run `git fetch --depth=1 origin {source.removeprefix('origin/')}`"
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
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment(), stdout=sys.stderr, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise HostError(f"--{role} {source}: gate.setup: `{command}` ended with status {done.returncode}")
