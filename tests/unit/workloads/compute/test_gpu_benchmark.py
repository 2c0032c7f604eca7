"""`benchmarks/gpu.py` at toy size on the processor: every part measures something, and says what it could not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from warm import Warm

from wanbench.workloads.compression import registry

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "gpu.py"


def benchmark(folder: Path, *options: str) -> tuple[int, str]:
    """Run it in a process that has torch; return its exit code and what it wrote to stderr."""
    with (folder / "errors").open("w") as errors:
        script = Warm(f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')",
                      [*options, "--out", str(folder / "gpu.json")], err=errors.fileno(),
                      environment={**os.environ, "CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
        script.communicate(timeout=200)
    return script.returncode or 0, (folder / "errors").read_text()


@pytest.mark.long  # a program for hosts with a GPU
def test_every_part_is_measured_and_written(tmp_path):
    code, errors = benchmark(tmp_path, "--toy")
    assert code == 0, errors
    measured = json.loads((tmp_path / "gpu.json").read_text())
    assert [step["model"] for step in measured["steps"]] == ["resnet50", "gpt-toy"]
    assert all(step["step_time_s"] > 0 and step["step_cv"] >= 0 for step in measured["steps"])
    assert {one["kind"] for one in measured["compressors"]} == set(registry.kinds())
    assert all(one["ns_per_byte"] is not None or one["why"] for one in measured["compressors"])
    assert [copy["copy"] for copy in measured["copies"]] == ["to host", "to device"]
    assert measured["nccl"] is None, "not tried without a card"


def test_without_a_device_it_says_so_in_one_line(tmp_path):
    code, errors = benchmark(tmp_path)
    assert (code, errors.count("\n")) == (1, 1)
    assert "--toy runs on the processor" in errors
