"""Rows of a run for tests of the gate."""

from __future__ import annotations

from typing import Any


def row(algorithm="ssgd", rep=0, *, rtt="100ms", workers=4, **fields) -> dict[str, Any]:
    """Return one repetition, by default with 0.5 s per step."""
    axes = {"algorithm": algorithm, "workers": workers} | ({"rtt": rtt} if rtt else {})
    return {
        "run": "r", "cell": f"{algorithm}-w{workers}-rtt{rtt}-abc", "cell_key": f"{algorithm} {workers} {rtt}",
        "rep": rep, "status": "ok", "reason": None, "testbed": "virtual", "emulator": None, "collective": "direct",
        "workload": "w", "payload_scale": 1.0, "algorithm": algorithm, "kind": algorithm, "params": {},
        "workers": workers, "profile": "uniform", "rtt_ms": 100.0, "rtt_max_ms": 100.0, "rate_mbps": None,
        "loss_pct": 0.0, "jitter_ms": 0.0, "tcp": "reno", "seed": 1 + rep, "steps": 20, "step_time_s": 0.5,
        "scalability": 0.6, "payload_bytes": 1000, "messages_sent": 20, "final_loss": None, "accuracy": None,
        "axes": axes, **fields,
    }  # fmt: skip


def alone(rep=0, **fields) -> dict[str, Any]:
    """Return the one-worker cell."""
    return row("one-worker", rep, rtt=None, workers=1, step_time_s=0.3, scalability=1.0, **fields)
