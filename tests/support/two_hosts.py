"""A run that two hosts measured together: each its own one-worker repetitions, and every other one of the others."""

from __future__ import annotations

import json

import synthetic_rows

from wanbench.harness.results.columns import empty

FAST, SLOW = "gpu7-3f9a1c", "gpu8-77aa01"


def shared(apart_pct, rows=None) -> list[dict]:
    """Return the rows of a run; on SLOW, every step takes this much longer."""
    found = []
    for row in synthetic_rows.latency_sweep() if rows is None else rows:
        hosts = (FAST, SLOW) if row["workers"] == 1 else ((FAST, SLOW)[row["rep"] % 2],)
        found += [on(host, row, apart_pct) for host in hosts]
    return found


def on(host, row, apart_pct) -> dict:
    """Return a repetition as this host measures it, before anything is divided."""
    factor = 1 + apart_pct / 100 if host == SLOW else 1.0
    times = {name: row[name] * factor for name in ("step_time_s", "compute_s", "stall_s", "overhead_s")}
    return {**row, **times, "host": host, "scalability": None, "calibration_s": None}


def without(rows, host) -> list[dict]:
    """Return the rows without the one-worker repetitions of this host."""
    return [row for row in rows if row["workers"] > 1 or row["host"] != host]


def write(folder, rows) -> None:
    """Write the rows as a recorded run, whose plan has all of their cells."""
    folder.mkdir(parents=True)
    rows = [{**empty(), "code": "c", **row, "run": folder.name} for row in rows]
    plan = {
        row["cell_key"]: {"key": row["cell_key"], "cell": row["cell"], "base_key": row["base_key"], "axes": row["axes"]}
        for row in rows
    }
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "spec.resolved.json").write_text(json.dumps({"spec": {}, "cells": list(plan.values())}))
    (folder / "manifest.json").write_text(json.dumps({"schema": 1}))
