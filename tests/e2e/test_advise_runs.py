"""Advice that is emulated, and its trial under plain torch on the emulated network."""

from __future__ import annotations

import json
import re
import sys
from statistics import fmean

import pytest
from cli_session import patiently
from few_settings import FEW

QUESTION = (
    "advise", "uniform", "--rtt", "40ms", "--rate", "50Mbit", "--workers", "2", "--emulate", "1",
    "--workload", "params=50000,tensors=2,step_time=40ms", *FEW,
)  # fmt: skip


@pytest.mark.long  # answers and trials are written and read in tests/unit/advise each time
def test_the_order_is_taken_from_what_was_emulated_and_the_trial_runs_as_predicted(bench):
    run = patiently(
        lambda: bench.run(*QUESTION, "--json", "--fresh"), lambda run: bool(json.loads(run.out)["emulation"]["why_not"])
    )
    advice = json.loads(run.out)
    assert [each["algorithm"] for each in advice["emulated"]] == [advice["advised"]["algorithm"]]
    assert advice["emulation"]["testbed"] == "netns"
    folder = bench.folder / "results" / "advise-40ms-50Mbit-50000"
    trial = (folder / "trial.py").read_text().replace("SECONDS = 300", "SECONDS = 5")
    (bench.folder / "trial.py").write_text(trial)
    network = ("--profile", "uniform", "--rtt", "40ms", "--rate", "50Mbit", "-n", "2")

    tried = patiently(
        lambda: bench.run("exec", *network, "--", sys.executable, "trial.py"), lambda run: "not as predicted" in run.out
    )
    assert ": as predicted" in tried.out
    steps = [json.loads(line) for line in (bench.folder / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [*range(len(steps))]
    mean_s = re.search(r"([\d.]+) s a step; predicted", tried.out).group(1)
    assert fmean(step["seconds"] for step in steps) == pytest.approx(float(mean_s), rel=0.01)
