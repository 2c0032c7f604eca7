"""Measure the time and memory of the virtual testbed per training step, by number of workers.

    python benchmarks/virtual_scale.py            a table of all collectives, 64 to 4096 workers on `aws`
    python benchmarks/virtual_scale.py --large    1024 workers x 100 steps of ssgd (one bucket) and dts; exits 1 above
                                                  60 s or 2 GiB
    python benchmarks/virtual_scale.py --sweep    latency-sweep with 3 repeats at payload scale 0.01 and 1, from the
                                                  command line to the figures; exits 1 above 20 s each

The workload is ResNet-50 at full size (102 MB per message), with phantoms for vectors. Each line runs in a new process.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

LIMIT_S, LIMIT_GIB = 60.0, 2.0
SWEEP_LIMIT_S = 20.0
WORKERS = (64, 256, 1024, 4096)
COLLECTIVES = ("direct", "ring", "hierarchical")


def spec(workers: int, collective: str, algorithm: str, window: int) -> dict[str, Any]:
    """Return a spec with one cell on aws."""
    return {
        "schema": 1,
        "name": "virtual-scale",
        "workload": {"name": "resnet50-v100"},
        "network": {"profile": "aws", "tcp": {"congestion": "reno", "slow_start_after_idle": False}},
        "comm": {"collective": collective, "buckets": "1GiB"},
        "algorithms": {algorithm: {"delay": 4, "period": 4} if algorithm == "dts" else {}},
        "sweep": {"workers": [workers]},
        "run": {"testbed": "virtual", "repeats": 1, "window": f"{window} steps"},
    }


def one(workers: int, collective: str, algorithm: str, window: int) -> None:
    """Simulate one cell and print its time and memory."""
    import torch  # noqa: F401  # its import is not measured

    from wanbench.harness.plan.auto import FixedHost
    from wanbench.harness.plan.cell import TrainingCell
    from wanbench.harness.plan.expand import expand
    from wanbench.harness.spec.experiment import Spec
    from wanbench.harness.testbeds.virtual.simulate import simulate
    from wanbench.harness.testbeds.virtual.tcp import Tcp

    experiment = Spec.from_dict(spec(workers, collective, algorithm, window), "benchmark")
    cell = expand(experiment, "benchmark", FixedHost())[-1]
    assert isinstance(cell, TrainingCell)
    began = time.perf_counter()
    simulated = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp())
    seconds = time.perf_counter() - began
    outcome = max(simulated.outcomes.values(), key=lambda o: o.window_end_ns - o.window_begin_ns)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "steps": cell.steps,
                "step_time_s": (outcome.window_end_ns - outcome.window_begin_ns) / 1e9 / cell.window,
                "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            }
        )
    )


def measured(*cell: object) -> dict[str, Any]:
    """Run `one` in a new process."""
    command = [sys.executable, __file__, "--one", *map(str, cell)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table() -> bool:
    """Print the time per step by workers, and return whether it grows no faster than N log N."""
    print(
        f"{'collective':18}{'workers':>8}{'ms per step':>12}{'growth':>9}{'N log N':>9}{'GiB':>7}"
        f"{'simulated s/step':>18}"
    )
    ok = True
    for collective in COLLECTIVES:
        first: float | None = None
        for workers in WORKERS:
            found = measured(workers, collective, "ssgd", 20)
            per_step = found["seconds"] / found["steps"]
            first = per_step if first is None else first
            growth = per_step / first
            allowed = workers * math.log2(workers) / (WORKERS[0] * math.log2(WORKERS[0]))
            ok &= growth <= allowed
            print(
                f"{collective:18}{workers:>8}{per_step * 1e3:>12.1f}{growth:>9.1f}{allowed:>9.1f}"
                f"{found['gib']:>7.2f}{found['step_time_s']:>18.3f}",
                flush=True,
            )
    return ok


def large() -> bool:
    """Return whether both algorithms stay within the limits."""
    ok = True
    for algorithm in ("ssgd", "dts"):
        found = measured(1024, "direct", algorithm, 100)
        ok &= found["seconds"] <= LIMIT_S and found["gib"] <= LIMIT_GIB
        print(
            f"{algorithm}: 1024 workers x {found['steps']} steps in {found['seconds']:.1f} s, {found['gib']:.2f} GiB "
            f"(limits {LIMIT_S:g} s, {LIMIT_GIB:g} GiB)",
            flush=True,
        )
    return ok


def sweep() -> bool:
    """Return whether the whole command stays within the limit at both scales."""
    ok = True
    for scale in ("0.01", "1.0"):
        with tempfile.TemporaryDirectory() as out:
            command = [
                sys.executable,
                "-m",
                "wanbench.harness.cli",
                "run",
                "latency-sweep",
                "--testbed",
                "virtual",
                "--out",
                out,
            ]
            began = time.perf_counter()
            subprocess.run([*command, "--set", f"workload.payload_scale={scale}"], check=True, capture_output=True)
            seconds = time.perf_counter() - began
        ok &= seconds <= SWEEP_LIMIT_S
        print(f"latency-sweep x 3, payload scale {scale}: {seconds:.1f} s (limit {SWEEP_LIMIT_S:g} s)", flush=True)
    return ok


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        what = large if "--large" in sys.argv else sweep if "--sweep" in sys.argv else table
        sys.exit(0 if what() else 1)
