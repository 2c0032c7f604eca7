"""Rows as a run writes them, computed from the law and a fixed error."""

from __future__ import annotations

import zlib
from dataclasses import replace

from wanbench.harness.plan.law import PredictInputs, one_shot_bytes, predict

ALGORITHMS = {
    "ssgd": ("ssgd", {}),
    "delayed-d4": ("delayed", {"delay": 4}),
    "delayed-d20": ("delayed", {"delay": 20}),
    "sparse-p4": ("sparse", {"period": 4}),
    "sparse-p20": ("sparse", {"period": 20}),
    "dts-d4-p4": ("dts", {"delay": 4, "period": 4}),
    "dts-d20-p4": ("dts", {"delay": 20, "period": 4}),
}
_ONE_WORKER = "one-worker-None-None-w1-direct"
RTTS_MS = (0.0, 20.0, 100.0, 200.0, 500.0, 1000.0)
STEP_S = 0.3


def latency_sweep(reps=3, collective="direct", workers=4, **change) -> list[dict]:
    """Return rows of seven algorithms by six round-trip times, and of the one-worker cell."""
    base = PredictInputs(workers, STEP_S, 0.0, 12.5e6, 1_022_281, collective=collective, step_cv=0.02)
    rows = one_worker(reps, **change)
    for rtt_ms in RTTS_MS:
        rows += algorithms(replace(base, rtt_s=rtt_ms / 1e3), reps, rtt_ms=rtt_ms, rtt_max_ms=rtt_ms, **change)
    return rows


def small_sweep(rows=None, **change) -> list[dict]:
    """Return rows of two of the algorithms on three of the networks, and of the one-worker cell."""
    kept = {"one-worker", "ssgd", "dts-d20-p4"}
    rows = latency_sweep(reps=2, **change) if rows is None else rows
    return [row for row in rows if row["algorithm"] in kept and row["rtt_ms"] in (None, 0.0, 100.0, 1000.0)]


def command_sweep(reps=3) -> list[dict]:
    """Return the same for a user's program: only the time of a step is known, and no law applies."""
    unknown = dict.fromkeys(
        ("law_inputs", "predicted_step_time_s", "collective", "channels", "compute_s", "stall_s", "overhead_s",
         "payload_bytes", "messages_sent", "steps_total", "accuracy", "final_loss")
    )  # fmt: skip
    known = {"workload": "train.py", "payload_scale": 1.0, "command": ["python", "train.py"], "run": "own"}
    return [{**row, **unknown, **known, "kind": f"command:{row['kind']}"} for row in latency_sweep(reps)]


def world4(reps=3) -> list[dict]:
    """Return rows of seven algorithms by two numbers of workers, on a named profile."""
    rows = one_worker(reps, run="world4")
    for workers in (4, 8):
        inputs = PredictInputs(workers, STEP_S, 0.21, 1.25e6, 1_022_281, step_cv=0.02)
        rows += algorithms(inputs, reps, run="world4", profile="world4", rtt_ms=137.0, rtt_max_ms=277.0)
    return rows


def algorithms(base: PredictInputs, reps: int, **change) -> list[dict]:
    """Return rows of every algorithm on one network."""
    rows = []
    for label, (kind, params) in ALGORITHMS.items():
        inputs = replace(base, delay=params.get("delay", 0), period=params.get("period", 1), channels=11)
        inputs = replace(inputs, one_shot_bytes=one_shot_bytes(inputs))
        name = {"algorithm": label, "kind": kind, "params": params}
        rows += [row(inputs, rep, **{**name, **change}) for rep in range(reps)]
    return rows


def one_worker(reps=3, **change) -> list[dict]:
    """Return the one-worker cell, which has no network and no network columns."""
    inputs = PredictInputs(1, STEP_S, 0.0, None, 0, step_cv=0.02)
    network = ("emulator", "collective", "channels", "profile", "rtt_ms", "rtt_max_ms", "rate_mbps", "loss_pct",
               "jitter_ms", "tcp")  # fmt: skip
    fields = {"algorithm": "one-worker", "kind": "local", "params": {}, **change, **dict.fromkeys(network)}
    return [row(inputs, rep, **fields) for rep in range(reps)]


def row(inputs: PredictInputs, rep: int, **fields) -> dict:
    """Return one repetition, 2 to 6 % slower than the law."""
    law = predict(inputs)
    key = "{algorithm} {rtt_ms} {tcp}".format(**{"rtt_ms": 0.0, "tcp": "reno"} | fields)
    cell = f"{key} w{inputs.workers} {inputs.collective}".replace(" ", "-")
    step_s = STEP_S
    if inputs.workers > 1:
        noise = zlib.crc32(f"{cell}-{rep}".encode()) / 2**31 - 1
        step_s = law.step_time_s * (1.04 + 0.02 * noise)
    overhead_s = 0.01 * step_s
    compute_s = min(STEP_S, step_s - overhead_s)
    made = {
        "run": "latency-sweep", "cell": cell, "rep": rep, "status": "ok", "reason": None, "testbed": "netns",
        "emulator": "relay", "collective": inputs.collective, "channels": inputs.channels,
        "workload": "resnet50-v100", "payload_scale": 0.01, "workers": inputs.workers, "profile": "uniform",
        "rtt_ms": 0.0, "rtt_max_ms": 0.0, "rate_mbps": 100.0, "loss_pct": 0.0, "jitter_ms": 0.0, "tcp": "reno",
        "seed": 1 + rep, "steps": 20, "step_time_s": step_s, "compute_s": compute_s,
        "stall_s": max(0.0, step_s - compute_s - overhead_s), "overhead_s": overhead_s,
        "scalability": STEP_S / step_s, "predicted_step_time_s": law.step_time_s,
        "law_inputs": inputs.to_json(), "axes": {}, **fields,
    }  # fmt: skip
    given = "{testbed} {workload} {payload_scale}".format(**made)
    return {"cell_key": f"{cell} {given}", "base_key": f"{_ONE_WORKER} {given}", **made}
