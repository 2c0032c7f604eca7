"""Base and head: a result folder, a git revision, an image, or the current working folder; both measured alternately.

A revision is checked out into its own folder, which borrows the objects of the repository. Nothing is written to the
repository, so nothing is left in it, even after a crash.

A side runs its own files, and that is proved, or nothing is compared: `own/sitecustomize.py` leads its imports to them,
and records them.

They are measured alternately: A B, B A, A B, ... Each is measured by its own code, one repetition at a time. The code
of a revision only needs `wanbench run`, which resumes: `run.repeats = r + 1` adds repetition r. So a base without
`check` can be measured too.
"""

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from wanbench.harness.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_SPEC,
    HostError,
    Interrupted,
    SpecError,
)
from wanbench.harness.gate.measured import Sides, other_machine
from wanbench.harness.gate.noise import HostNoise
from wanbench.harness.gate.verdict import name, name_of
from wanbench.harness.plan.cell import Cell
from wanbench.harness.process.git import environment, git
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder, open_run
from wanbench.harness.run.host import StopRequest, stoppable
from wanbench.harness.spec.command import files
from wanbench.harness.spec.tables import GateTable
from wanbench.netprofiles import toml_text
from wanbench.workloads.process.namespace import die_with_parent

HOOK = Path(__file__).parent / "own"
_GRACE_S = 60.0  # for a run that was asked to stop
_TICK_S = 0.2


class NotComparable(Exception):
    """A side cannot run the spec, or ran files that are not its own. The message is one line."""


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
            NotComparable: one of them is a file of another checkout, or there is no record.
        """
        if not record.is_file():
            raise NotComparable(
                f"the files that the {role} ran are not known: its Python wrote no record of imports ({record})"
            )
        modules = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        files = sorted({*modules, *map(os.path.realpath, scripts)})
        for file in files:
            top = self._checkout(file)
            if top is not None and top != self.root and not _ignored(Path(file)):
                raise NotComparable(
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
        inside = folder / Path.cwd().resolve().relative_to(top)
        python = folder / ".venv" / "bin" / "python"  # of its own environment, if `setup` made one
        yield Side(
            role,
            f"{source} ({revision[:9]})",
            folder=inside if inside.is_dir() else folder,
            python=str(python) if python.is_file() else sys.executable,
            path=(str(folder),) if _is_wanbench(folder) else (),
            same=git("rev-parse", f"{revision}^{{tree}}", cwd=top),
            own=_own_files(folder, top, scratch),
        )
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


# ------------------------------------------------------------------ base and head alternately

Axes = Mapping[str, Any]


@dataclass(frozen=True)
class RunRequest:
    """The command line of `run` without the number of repetitions.

    Attributes:
        spec: its file. name: of the experiment. excluded: `sweep.exclude` of the spec. options: further arguments.
        commands: those of its cells, which run in the folder of the spec.
    """

    spec: Path
    name: str
    excluded: tuple[Axes, ...]
    options: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...] = ()


class Measurement:
    """The repetitions of one side, in its own folder."""

    def __init__(self, side: Side, request: RunRequest, out: Path) -> None:
        self.side, self._request, self._out = side, request, out
        self.folder = RunFolder(out / request.name)
        self._passed_on: set[str] = set()
        self._record = out / "imports.jsonl"
        self.ran: dict[str, str] = {}  # digests of the files of its checkout that it ran, by path in it
        # Commands run in the folder of the spec.
        self._spec = side.own.copied(request.spec) if side.own is not None and request.commands else request.spec

    def rows(self) -> list[Row]:
        """The rows so far."""
        if not self.folder.path.is_dir():
            return []
        content = self.folder.read()
        return [*content.rows, *content.earlier]  # the plan of a round does not have the cells that it leaves out

    def measure(self, repeats: int, leave_out: Iterable[Axes]) -> None:
        """Measure up to `repeats` repetitions of all cells except those left out.

        Raises:
            NotComparable: the base refuses the spec, as an earlier version can, or a side ran files of others.
            SpecError: the head refuses the spec.
            HostError: this host cannot run it, or it ended with an unexpected status.
            Interrupted: the user stopped it.
        """
        left_out = [*self._request.excluded, *leave_out]
        sets = [*self.side.assignments, f"run.repeats={repeats}"]
        sets += [f"sweep.exclude={toml_text.value(left_out)}"] if left_out else []
        assigned = [part for assignment in sets for part in ("--set", assignment)]
        command = [self.side.python, "-P", "-m", "wanbench.harness.cli", "run", str(self._spec), "--no-figures",
                   "--out", str(self._out), *self._request.options, *assigned]  # fmt: skip
        self._out.mkdir(parents=True, exist_ok=True)
        code, last = _run(command, self.side, self._record, self._say)
        if self.side.own is not None:
            scripts = {path for command in self._request.commands for path in files(command, self._spec.parent)}
            self.ran = self.side.own.prove(self.side.role, self._record, sorted(scripts))
        if code == EXIT_SPEC:
            if self.side.role == "base":
                raise NotComparable(f"the base cannot run this spec: {last}")
            raise SpecError(f"head ({self.side.title}): {last}")
        if code == EXIT_HOST:
            raise HostError(f"{self.side.role} ({self.side.title}): {last}")
        if code not in {EXIT_OK, EXIT_FAILED}:
            raise HostError(f"{self.side.role} ({self.side.title}): `wanbench run` ended with status {code}: {last}")

    def _say(self, line: str) -> None:
        """Print a line to stderr, but only once if rounds repeat it."""
        if line not in self._passed_on:
            self._passed_on.add(line)
            print(f"{self.side.role}: {line}", file=sys.stderr, flush=True)


def turns(first: int, last: int, base: Measurement, head: Measurement) -> Iterable[tuple[int, Measurement]]:
    """(round, side) in the order of measuring. The first side alternates, so that a steady drift cancels."""
    for index in range(first, last):
        for side in (base, head) if index % 2 == 0 else (head, base):
            yield index, side


def _run(command: Sequence[str], side: Side, record: Path, say: Callable[[str], None]) -> tuple[int, str]:
    """Run a command: (exit status, last line on stderr). `say` gets every line. Raises: Interrupted."""
    parent = os.getpid()
    given = environment()
    own = side.own.environment(record) if side.own is not None else {}
    path = os.pathsep.join(filter(None, [str(HOOK) if own else "", *side.path, given.get("PYTHONPATH")]))
    last = ""
    # An exception from a signal handler can get lost while Python forks, but an event cannot.
    with stoppable() as stopped:
        process = subprocess.Popen(
            command,
            cwd=side.folder,
            env=given | own | ({"PYTHONPATH": path} if path else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        )
        with process:
            for line in _lines(process, stopped):
                say(line)
                last = line.strip() or last
    if stopped.is_set() or process.returncode in {-signal.SIGINT, EXIT_INTERRUPTED}:
        raise Interrupted("interrupted; nothing was judged")
    return process.returncode, last.removeprefix("wanbench: ")


def _lines(process: subprocess.Popen[bytes], stopped: StopRequest) -> Iterator[str]:
    """The lines of the process on stderr. It is interrupted when we are, and killed if it does not stop."""
    assert process.stderr is not None
    rest, deadline_s = b"", math.inf
    while True:
        if stopped.is_set() and deadline_s == math.inf:
            process.send_signal(signal.SIGINT)
            deadline_s = time.monotonic() + _GRACE_S
        if time.monotonic() > deadline_s:
            process.kill()
        if not select.select([process.stderr], [], [], _TICK_S)[0]:
            continue
        part = os.read(process.stderr.fileno(), 1 << 16)
        if not part:
            return
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


class Pair:
    """The measurements of base and head while they are compared."""

    def __init__(self, cells: Sequence[Cell], order: RunRequest, folder: Path, base: Side, head: Side) -> None:
        """`cells`: those to compare. `folder`: for the results of both sides; earlier ones are removed."""
        self._cells = cells
        self._done = 0
        for side in (base, head):
            shutil.rmtree(folder / side.role, ignore_errors=True)
        self.base = Measurement(base, order, folder / base.role)
        self.head = Measurement(head, order, folder / head.role)
        self.files = {"base": str(self.base.folder.path), "head": str(self.head.folder.path)}

    def measure(self, rounds: int, only: Collection[str]) -> None:
        """Measure up to this many rounds of the cells in `only` (all if empty), except failed and exact ones.

        Raises: as `Measurement.measure`.
        """
        for index, side in turns(self._done, rounds, self.base, self.head):
            leave_out = self._left_out(only) if index else ()
            print(f"check: round {index + 1} of {rounds}, {side.side.role}", file=sys.stderr, flush=True)
            if leave_out is None:
                break
            side.measure(index + 1, leave_out)
        self._done = rounds
        for side in (self.base, self.head):  # if the host was busy: once more, after the other cells
            doubtful = {name(row) for row in side.rows() if row["status"] == "invalid"}
            leave_out = self._left_out(doubtful)
            if doubtful and leave_out is not None:
                side.measure(rounds, leave_out)

    def sides(self, gate: GateTable, noise: HostNoise) -> Sides:
        """The results of both sides so far."""
        machines = [side.folder.manifest() for side in (self.base, self.head)]
        return Sides(self.base.rows(), self.head.rows(), gate, other_machine(*machines), noise.wire_band)

    def _left_out(self, only: Collection[str]) -> list[Mapping[str, Any]] | None:
        """Axes of the cells to leave out, None if no other cell is left. One-worker cells follow the others."""
        rows = [*self.base.rows(), *self.head.rows()]
        # More repetitions cannot change cells that failed on one side, or are simulated.
        settled = {name(row) for row in rows if row["status"] == "failed" or row["testbed"] == "virtual"}
        names = {name_of(cell): cell for cell in self._cells if not cell.is_baseline}
        unsettled = [cell for cell in names if cell not in settled]
        # If only one-worker cells are wanted, the first cell of several workers brings its own.
        keep = [cell for cell in unsettled if not only or cell in only] or unsettled[:1]
        return [dict(cell.axes) for text, cell in names.items() if text not in keep] if keep else None
