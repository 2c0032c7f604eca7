"""`benchmarks/gpu.py` at toy size on the processor: every part measures something, and says what it could not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from wanbench.workloads.compression import registry

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "gpu.py"


def test_every_part_is_measured_and_written(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--toy", "--out", tmp_path / "gpu.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "gpu.json").read_text())
    assert [step["model"] for step in measured["steps"]] == ["resnet50", "gpt-toy"]
    assert all(step["step_time_s"] > 0 and step["step_cv"] >= 0 for step in measured["steps"])
    assert {one["kind"] for one in measured["compressors"]} == set(registry.kinds())
    assert all(one["ns_per_byte"] is not None or one["why"] for one in measured["compressors"])
    assert [copy["copy"] for copy in measured["copies"]] == ["to host", "to device"]
    assert measured["nccl"] is None, "not tried without a card"


def test_without_a_device_it_says_so_in_one_line(tmp_path):
    command, hidden = (
        [sys.executable, SCRIPT, "--out", tmp_path / "gpu.json"],
        {**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    done = subprocess.run(command, capture_output=True, text=True, env=hidden)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "--toy runs on the processor" in done.stderr
