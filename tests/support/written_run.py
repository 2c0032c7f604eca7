"""A run folder as `run` writes it, from made-up rows."""

from __future__ import annotations

import json
from pathlib import Path

from wanbench.harness.results.store import RunFolder

SPEC = 'schema = 1\nname = "t"   # <b>not bold</b>\n'
MANIFEST = {"schema": 1, "argv": ["wanbench", "run", "t"], "kernel": "6.1", "versions": {"torch": "2.13"}, "git": None}


def write_run(path: Path, rows: list[dict], log_tail: tuple[str, ...] = ()) -> RunFolder:
    """Write every row as a repetition, finished or failed."""
    folder = RunFolder(path)
    folder.prepare(SPEC, {"description": "A run that was <made up>."}, MANIFEST)
    for row in rows:
        full = {"cell_key": row["cell"], "code": "c0de", "steps_total": 40, **row}
        kept = "" if row["status"] == "ok" else ".failed-1"
        rep = path / "cells" / row["cell"] / f"rep-{row['rep']}{kept}"
        rep.mkdir(parents=True)
        if kept:
            (rep / "error.json").write_text(json.dumps({"row": full, "log_tail": list(log_tail)}))
        else:
            (rep / "result.json").write_text(json.dumps(full))
    return folder
