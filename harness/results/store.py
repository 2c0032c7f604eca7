"""Results on disk: one folder per cell and repetition, finished by one atomic rename.

    results/<experiment>/
        spec.toml               as the user wrote it
        spec.resolved.json      the plan: overrides applied, values chosen for `auto`, and the cells
        manifest.json           machine, kernel, versions, git, command line
        cells/<slug>/
            cell.json           the resolved cell; its hash is its identity
            rep-0/              exists only when finished
                result.json     one row
                steps.parquet   one row per rank and step
                messages.parquet   one row per message of rank 0, in its first steps
                evaluations.parquet   step, time and accuracy of each evaluation, if a model is trained
                network.json    configured and measured values of every path
                worker-0.log ...
            rep-0@HOST/         of a one-worker cell that another host has measured too
            rep-1.failed-1/     kept, with error.json
            rep-2.damaged-1/    kept: what was there is not a result, so it was measured again
        workers/<name>/         one for each process that measured here (harness/results/claims.py):
            events.jsonl        what it did, in order
            digests.jsonl       digests of every result.json, noted when it was written
        claims/                 which process measures what now (harness/results/claims.py)
        digests.jsonl           digests of the files above
        results.parquet         derived; can be deleted
        figures/

There is no other state: to resume is to run the plan minus the finished repetitions. A recorded run
(harness/results/record.py) has one rows.jsonl instead of cells/.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from wanbench.harness.errors import HostError, SpecError, in_words
from wanbench.harness.grouping import by_key
from wanbench.harness.plan.cell import Cell
from wanbench.harness.process.owner import locked
from wanbench.harness.results import digests
from wanbench.harness.results import planned as planning
from wanbench.harness.results.columns import Row
from wanbench.harness.results.disk import keep_as, to_disk, write_json, write_text
from wanbench.harness.results.goodput import set_goodput
from wanbench.harness.results.row_files import RowFiles, parsed, printable
from wanbench.harness.results.scalability import rescale

SCHEMA = 1
EVENTS = "events.jsonl"
CLAIMS = "claims"
RECORDED = "rows.jsonl"
_REP = re.compile(r"rep-\d+(@[\w.-]+)?")
_KEY = 6  # characters of the identity at the end of a cell's name


@dataclass(frozen=True)
class Content:
    """The content of a run's folder.

    Attributes:
        rows: of the cells of its plan. earlier: of cells from an earlier version of its spec; kept, and shown only on
            request.
        problems: a line for every file, or line of rows.jsonl, that cannot be read: its path in the folder, and why.
        planned: the plan; None if it cannot be read.
    """

    rows: list[Row]
    earlier: list[Row]
    problems: list[str]
    planned: planning.Planned | None = None

    @property
    def note(self) -> str | None:
        """A sentence about the rows that are left out; None if there are none, or if several plans measured them."""
        if not self.earlier or (self.planned is not None and self.planned.part):
            return None
        count = "1 repetition" if len(self.earlier) == 1 else f"{len(self.earlier)} repetitions"
        verb = "is" if len(self.earlier) == 1 else "are"
        return f"{count} of an earlier spec or another testbed {verb} not shown; `wanbench results --all` shows them"


class RunFolder:
    """The folder of one experiment's results. Several processes measure there with `SharedRun` (claims.py)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journals, self._part = path, "part"
        self._rows = RowFiles()
        self._cell_folders: dict[str, Path] | None = None  # by the identity at the end of their names, if listed

    @classmethod
    def new(cls, root: Path, name: str) -> RunFolder:
        """Make a folder of this name, or of NAME-2 and so on: one that no other run has. Raises: HostError."""
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        while True:
            path = root / next(names)
            with writable(path), contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                return cls(path)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.path.name

    def prepare(self, spec_text: str | None, plan: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        """Make the folder, or continue in an existing one. Raises: HostError if it cannot be written."""
        self._cell_folders = None
        with writable(self.path):
            (self.path / "cells").mkdir(parents=True, exist_ok=True)
            if spec_text is not None:
                write_text(self.path / "spec.toml", spec_text)
            write_json(self.path / planning.FILE, plan)
            write_json(self.path / "manifest.json", manifest)
            for name in digests.RUN_FILES:
                if (self.path / name).is_file():
                    digests.note(self.path, self.path / name)

    def refuse_links(self) -> None:
        """Refuse links and devices, because a run can come from a stranger. Raises: SpecError."""
        for path in _strange(self.path):
            raise SpecError(f"{Path(path)}: neither a file nor a folder, which a run cannot contain; remove it")

    def lock(self, *, alone: bool = True) -> RunLock:
        """Hold the folder, alone or with others that measure. Raises: HostError, on entry; SpecError."""
        self.refuse_links()
        return RunLock(self.path, alone=alone)

    def clear(self) -> None:
        """Remove all results (`--fresh`)."""
        for name in ("cells", "figures", digests.WORKERS, CLAIMS):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self._cell_folders = None
        for name in ("results.parquet", EVENTS, digests.FILE):
            (self.path / name).unlink(missing_ok=True)

    def refuse_mixed_code(self, differs: Callable[[Row], str | None]) -> None:
        """Refuse to mix results of different code.

        Args:
            differs: says what of the code that made a row is different now; None: nothing.

        Raises:
            SpecError: other code measured some finished repetitions.
        """
        differences = ((row["cell"], differs(row)) for row in self._all_rows([]) if row["status"] == "ok")
        other = [(cell, what) for cell, what in differences if what is not None]
        if other:
            count = "1 repetition was" if len(other) == 1 else f"{len(other)} repetitions were"
            cell, what = other[0]
            raise SpecError(
                f"{self.path}: {count} measured by other code (e.g. {cell}: another version of {what}); "
                "--keep keeps them, --fresh measures everything again"
            )

    def event(self, kind: str, **fields: Any) -> None:
        """Append one line to this process's journal."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **fields})
        with (self.journals / EVENTS).open("a", encoding="utf-8") as handle:
            handle.write(line + "\n")

    # ---------------------------------------------------------------- repetitions

    def cell_folder(self, cell: Cell) -> Path:
        """The folder of a cell's repetitions, which may not exist yet.

        It follows from the identity: an axis added later changes a cell's name, but not its folder. The folders are
        listed once, since to search them for each new cell would take ever longer.
        """
        cells = self.path / "cells"
        folder = cells / cell.slug
        if folder.is_dir():
            return folder
        if self._cell_folders is None:
            names = sorted(os.listdir(cells), reverse=True) if cells.is_dir() else []
            self._cell_folders = {name[-_KEY:]: cells / name for name in names if name[-_KEY - 1 : -_KEY] == "-"}
        return self._cell_folders.get(cell.key[:_KEY], folder)

    def is_finished(self, cell: Cell, rep: int, host: str | None = None) -> bool:
        """True if this repetition has a result; with a host, one that was measured there.

        Raises: OSError: it cannot be known, because what is there cannot be read just now.
        """
        return any(self._finished(path, host) for path in self._candidates(cell, rep, host))

    def _candidates(self, cell: Cell, rep: int, host: str | None) -> list[Path]:
        """Where a repetition can be. That of a one-worker cell, which each host measures, can be there per host."""
        folder = self.cell_folder(cell)
        return [folder / f"rep-{rep}", *([folder / f"rep-{rep}@{host}"] if host is not None else [])]

    def _finished(self, path: Path, host: str | None) -> bool:
        row = self._rows.find(path / "result.json")
        return row is not None and host in {None, row.get("host") or host}

    def failures(self, cell: Cell, rep: int) -> list[Row]:
        """The rows of earlier tries of this repetition, oldest first."""
        errors = sorted(self.cell_folder(cell).glob(f"rep-{rep}.failed-*/error.json"), key=_try_number)
        return [row for path in errors if (row := self._rows.find(path)) is not None]

    def tries(self) -> Counter[tuple[str, int]]:
        """The number of failed tries, by the name of the cell's folder and the repetition."""
        names = ((path.parts[-3], re.match(r"rep-(\d+)\.", path.parts[-2])) for path in self._errors())
        return Counter((cell, int(rep[1])) for cell, rep in names if rep is not None)

    def begin(self, cell: Cell, rep: int) -> Path:
        """Make an empty folder to work in, and remove leftovers of an interrupted try."""
        folder = self.cell_folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        if self._cell_folders is not None:
            self._cell_folders.setdefault(cell.key[:_KEY], folder)
        write_json(folder / "cell.json", {"identity": cell.identity(), "axes": cell.axes, "base_key": cell.base_key})
        part = folder / f"rep-{rep}.{self._part}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        return part

    def finish(self, cell: Cell, rep: int, part: Path, row: Row, host: str | None = None) -> Path | None:
        """Write the row with the digests of the files beside it, and publish the repetition by one rename.

        Args:
            host: as for `is_finished`.

        Returns:
            Its folder; None if another process has published it first, and this result was discarded.
        """
        write_json(part / "result.json", {**row, "evidence": digests.of_evidence(part)})
        # The files must be on disk before the rename, in case of a power cut.
        to_disk([*part.iterdir()])
        to_disk([part])
        for final in self._candidates(cell, rep, host):
            if _renamed(part, final):
                to_disk([final.parent])
                digests.note(self.path, final / "result.json", self.journals)
                return final
            if self._finished(final, host):
                break
        shutil.rmtree(part, ignore_errors=True)
        return None

    def fail(self, cell: Cell, rep: int, part: Path, error: dict[str, Any], host: str | None = None) -> Path | None:
        """Keep a failed try beside the others, with its logs. Return its folder."""
        write_json(part / "error.json", error)
        return keep_as(part, f"rep-{rep}.failed-")

    def rows(self) -> list[Row]:
        """One row per repetition of the plan's cells, finished or failed. An unreadable one counts as not finished."""
        return self.read().rows

    def read(self) -> Content:
        """Read everything that the folder holds."""
        problems: list[str] = []
        rows = self._all_rows(problems)
        for row in rows:
            row["run"] = self.name
        content = Content(rows, [], problems)
        with contextlib.suppress(SpecError):  # without a plan, all rows are kept
            planned = planning.read(self.path)
            groups = by_key((row["cell_key"] in planned.cells and row["rep"] < planned.repeats, row) for row in rows)
            content = Content(groups.get(True, []), groups.get(False, []), problems, planned)
            for row in content.rows:  # an axis added later can change the names of the same cells
                cell = planned.cells[row["cell_key"]]
                row["base_key"], row["axes"] = cell.base_key, cell.axes
        for part in (content.rows, content.earlier):
            rescale(part)
            set_goodput(part)
        return content

    def _all_rows(self, problems: list[str]) -> list[Row]:
        if (self.path / RECORDED).is_file():
            return self._recorded(problems)
        results = [row for _, row in self._readable(self._results(), problems)]
        finished = {_what(row) for row in results}
        failed = {_what(row): row for _, row in self._readable(self._errors(), problems)}
        return results + [row for key, row in failed.items() if key not in finished]

    def results(self) -> dict[Path, Row]:
        """The rows of all finished repetitions that can be read, by the path of their file in this folder."""
        return dict(self._readable(self._results(), []))

    def _readable(self, paths: list[Path], problems: list[str]) -> Iterator[tuple[Path, Row]]:
        """Yield the rows that can be read, each with the path of its file in this folder."""
        for path in paths:
            name = path.relative_to(self.path)
            try:
                yield name, self._rows.load(path)
            except FileNotFoundError:  # only its folder is there
                continue
            except OSError as error:
                problems.append(f"{name}: cannot be read ({in_words(error)})")
            except ValueError as error:
                problems.append(f"{name}: not a result, so not finished: {error}")

    def _recorded(self, problems: list[str]) -> list[Row]:
        rows = []
        with (self.path / RECORDED).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = parsed(line)
                    if not row["cell"]:
                        raise ValueError("cell: missing")
                    rows.append(row)
                except ValueError as error:
                    problems.append(f"{RECORDED} line {number}: not a result: {error}")
        return rows

    def _results(self) -> list[Path]:
        return [folder / "result.json" for folder in self._reps() if _REP.fullmatch(folder.name)]

    def _errors(self) -> list[Path]:
        return sorted((folder / "error.json" for folder in self._reps() if ".failed-" in folder.name), key=_try_number)

    def _reps(self) -> Iterator[Path]:
        """All folders of repetitions. Raises: OSError: one cannot be listed just now, which `glob` would pass over."""
        cells = self.path / "cells"
        for cell in sorted(cells.iterdir()) if cells.is_dir() else ():
            yield from sorted(cell.iterdir()) if cell.is_dir() else ()

    def manifest(self) -> dict[str, Any]:
        """Read the manifest of the last `run`."""
        manifest: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return manifest


def open_run(source: str | None, root: Path) -> RunFolder:
    """Open a run by folder, by its name under `root`, or the latest one. Raises: SpecError."""
    if source is None:
        runs = sorted(root.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
        if not runs:
            raise SpecError(f"{root}: no results here; start with `wanbench run smoke`")
        return _openable(RunFolder(runs[-1].parent))
    for path in (Path(source), root / source):
        if (path / "manifest.json").is_file():
            return _openable(RunFolder(path))
    names = ", ".join(sorted(path.parent.name for path in root.glob("*/manifest.json"))) or "none"
    raise SpecError(f"{source}: not a run folder, and no run of that name under {root} (there: {names})")


def _openable(folder: RunFolder) -> RunFolder:
    """Check the schema, and that there are no links. Raises: SpecError."""
    folder.refuse_links()
    try:
        schema = folder.manifest()["schema"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return folder  # the schema is not recorded; the rows are checked one by one anyway
    if schema != SCHEMA:
        raise SpecError(
            f"{folder.path}: the results have schema {printable(schema)}, but this wanbench reads schema {SCHEMA}; "
            "read them with the version that wrote them, or measure again with --fresh"
        )
    return folder


def _renamed(part: Path, final: Path) -> bool:
    """Whether a repetition was published here. Another result stays; what is none is kept beside it. Raises: OSError:
    among others, what is there cannot be read just now, and may be a result."""
    result = (part / "result.json").read_bytes()
    while True:
        try:
            part.rename(final)
        except FileNotFoundError:  # NFS can repeat a request whose answer was lost
            return (final / "result.json").read_bytes() == result
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # nothing is in the way
                raise
            if RowFiles().find(final / "result.json") is not None:
                return False
            keep_as(final, f"{final.name}.damaged-")
        else:
            return True


def rep_folder(cell: Path, rep: int, host: str | None) -> Path:
    """The finished repetition in a cell's folder; a further host's own one of a one-worker cell has its name."""
    of_host = cell / f"rep-{rep}@{host}"
    return of_host if of_host.is_dir() else cell / f"rep-{rep}"


def _what(row: Row) -> tuple[Any, ...]:
    """What a row measures: a repetition, which any host may do, and of one worker what each does for itself."""
    return row["cell"], row["rep"], row.get("host") if row["workers"] == 1 else None


def _try_number(path: Path) -> int:
    number = path.parent.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _strange(folder: Path) -> Iterator[str]:
    """Yield the paths below a folder that are neither files nor folders; of links, the target is not looked at.

    A listing names the types, so that no file has to be asked for: a large run has tens of thousands.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                    yield entry.path  # it still exists; a run can be under way


# ---------------------------------------------------------------- the lock

_LOCK = ".lock"
_PATIENCE_S = 5.0  # while another process prepares the folder
_LOOK_S = 0.1


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Report in one line that nothing can be written in the folder of a run. Raises: HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"{folder}: cannot write results here ({error.strerror}); choose another folder with --out"
        ) from None


class RunLock:
    """Hold the folder of a run: one process prepares it, then any number may measure.

    It spares users a mistake, such as --fresh while another process measures. Correctness does not depend on it: a
    network file system may have no locks, or only those of its own host.

    Attributes:
        joined: whether others measure here already.

    Args:
        folder: the run's folder, which is made. alone: whether nobody else may measure.

    Raises:
        HostError: on entry, another process holds it, or it is read-only.
    """

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        self._folder, self._alone = folder, alone
        self._file: IO[str]
        self.joined = False

    def __enter__(self) -> RunLock:
        with writable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / _LOCK).open("a+")  # NFS shares a lock only if the file is open for reading
        if not self._taken():
            self._file.close()
            raise HostError(f"{self._folder}: another `wanbench run` is writing here; wait for it, or use --out")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def share(self) -> None:
        """Let others measure too."""
        locked(self._file, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        """Whether nobody else measures here any more; then nobody can begin. Without locks, always."""
        return locked(self._file, fcntl.LOCK_EX)

    def _taken(self) -> bool:
        """Take the lock alone, or join those who measure."""
        until = time.monotonic() + (0.0 if self._alone else _PATIENCE_S)
        while True:
            if locked(self._file, fcntl.LOCK_EX):
                return True
            if not self._alone and locked(self._file, fcntl.LOCK_SH):
                self.joined = True
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)
