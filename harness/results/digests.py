"""Digests of the files of a run, with which `verify` sees later edits and damage.

A row names the digests of the files beside it. `digests.jsonl` in the run's folder names those of the run's own files;
a line is appended when a file is written, and the last one for a file counts. The digests of rows are in the folder of
the process that measured them. They find damage and edits, but not forged digests.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

WORKERS = "workers"  # the folders of the processes that measure, each with its own journals
FILE = "digests.jsonl"
RUN_FILES = ("spec.toml", "spec.resolved.json", "manifest.json")
_EVIDENCE = (".parquet", ".json")  # not the logs

Row = Mapping[str, Any]


def digest(path: Path) -> str:
    """The SHA-256 of a file. Raises: OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_evidence(folder: Path) -> dict[str, str]:
    """The digests of the data in the folder of a repetition, by the name of the file."""
    files = (path for path in sorted(folder.iterdir()) if path.suffix in _EVIDENCE and path.name != "result.json")
    return {path.name: digest(path) for path in files}


def note(run: Path, path: Path, to: Path | None = None) -> None:
    """Append the digest of a finished file in the folder of a run.

    Args:
        to: the folder of the journal; default: the run's.
    """
    line = json.dumps({"file": path.relative_to(run).as_posix(), "sha256": digest(path)})
    with ((to or run) / FILE).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def journals(run: Path, name: str) -> Iterator[Path]:
    """The journals of this name: that in the run's folder, then those of its workers."""
    yield from (path for path in [run / name, *sorted(run.glob(f"{WORKERS}/*/{name}"))] if path.is_file())


def noted(run: Path) -> dict[str, set[str]] | None:
    """The noted digests by path in the run's folder; None if nothing was noted, as by earlier versions.

    A repetition that was measured again has several, in no order, and is intact with any of them.
    """
    digests: dict[str, set[str]] = {}
    files = [*journals(run, FILE)]
    for path in files:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
                name, written = str(entry["file"]), str(entry["sha256"])
            except (ValueError, LookupError, TypeError):  # cut short
                continue
            digests[name] = {written} | (digests.get(name, set()) if path.parent != run else set())
    return digests if files else None


def changed(run: Path, rows: Mapping[Path, Row]) -> Iterator[tuple[Path, str]]:
    """Yield the files of a run that are not as they were written: the path in its folder, and what is wrong.

    Args:
        rows: the rows that can be read, by the path of their file in the run's folder.
    """
    expected = {Path(name): written for name, written in (noted(run) or {}).items()}
    for path, row in rows.items():
        evidence = row.get("evidence") or {}
        expected |= {path.with_name(Path(name).name): {str(written)} for name, written in evidence.items()}
    for path, written in expected.items():
        if path.is_absolute() or ".." in path.parts:  # a run can come from a stranger
            continue
        try:
            if digest(run / path) not in written:
                yield path, "is not as it was written"
        except FileNotFoundError:
            yield path, "is missing"
        except OSError as error:
            yield path, f"cannot be read ({error.strerror})"
