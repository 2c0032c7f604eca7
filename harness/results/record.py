"""Recorded runs: the data of a run that figures need, small enough to be kept with the code.

results/reference/<run>/
    spec.toml, spec.resolved.json, manifest.json    as in the run's folder, without paths of the host
    rows.jsonl                                      one line per repetition, in a fixed order
    evidence.jsonl                                  learning curve, first steps and network of each repetition
    digests.jsonl                                   digests of these files, written last
"""

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from wanbench.harness.errors import CellsFailed
from wanbench.harness.results import digests
from wanbench.harness.results.disk import write_json, write_text
from wanbench.harness.results.evidence import CURVE, FILE, NETWORK, PACE, TRACE, Evidence
from wanbench.harness.results.store import RECORDED, RunFolder


def record(folder: RunFolder, to: Path, needed: Collection[str]) -> RunFolder:
    """Write the recording of a run, and replace an older one.

    Args:
        folder: of a finished run. to: the folder of the recording.
        needed: the evidence that figures need beside rows: any of `CURVE`, `TRACE`, `NETWORK` and `PACE`.

    Raises:
        CellsFailed: the run has no valid repetition, or files that cannot be read.
    """
    content = folder.read()
    if content.problems:
        raise CellsFailed(f"{folder.path / content.problems[0]}; run the experiment again before recording it")
    rows = content.rows
    if not any(row["status"] == "ok" for row in rows):
        raise CellsFailed(f"{folder.path}: no valid repetition, so there is nothing to record")
    rows.sort(key=lambda row: (row["cell"], row["rep"], row["host"] or ""))
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in ("spec.toml", "spec.resolved.json"):
        if (folder.path / name).is_file():
            shutil.copyfile(folder.path / name, to / name)
    manifest = {key: value for key, value in folder.manifest().items() if key not in ("argv", "code")}
    write_json(to / "manifest.json", manifest)
    write_text(to / RECORDED, "".join(_line(_of_any_host(row, folder.name)) for row in rows))
    lines = [line for row in rows if (line := _evidence(row, Evidence(folder), needed)) is not None]
    if lines:
        write_text(to / FILE, "".join(map(_line, lines)))
    for name in (*digests.RUN_FILES, RECORDED, FILE):
        if (to / name).is_file():
            digests.note(to, to / name)
    return RunFolder(to)


def _of_any_host(row: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The row without paths of the host, and without digests of files that are not recorded."""
    named = {name: digest for name, digest in (row["sources"] or {}).items() if not name.startswith("/")}
    return {**row, "run": run, "evidence": None, "sources": named or None}


def _evidence(row: Mapping[str, Any], evidence: Evidence, needed: Collection[str]) -> dict[str, Any] | None:
    if row["status"] != "ok" or row["workers"] == 1:
        return None
    readers = {CURVE: evidence.curve, TRACE: evidence.trace, NETWORK: evidence.network, PACE: evidence.pace}
    first = {TRACE, NETWORK, PACE}  # from the first repetition only: they show one example, not how repetitions vary
    values = {what: readers[what](row) for what in sorted(needed) if row["rep"] == 0 or what not in first}
    kept = {what: value for what, value in values.items() if value is not None}
    where = {"host": row["host"]} if row["host"] is not None else {}
    return {"cell": row["cell"], "rep": row["rep"], **where, **kept} if kept else None


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(", ", ": ")) + "\n"
