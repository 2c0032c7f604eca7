"""The script of docs/how-to/own-loop.md under a spec: wanbench chooses the algorithm, and latency separates them."""

import json
import sys

import pytest
from documents import write_files


@pytest.mark.long  # a script is swept, and wrapped loops train, apart each time
def test_one_script_is_measured_with_two_algorithms(bench):
    write_files("how-to/own-loop.md", bench.folder)
    text = (bench.folder / "sweep.toml").read_text()
    assert '"python"' in text
    spec = bench.spec(text.replace('"python"', json.dumps(sys.executable)))
    command = bench.start("run", spec, "--out", "out", "--no-figures", "--set", "run.repeats=1")
    result = command.wait(timeout_s=600)  # six processes import torch and its optimizers, one cell after the other
    assert result.code == 0, result.err
    rows = {row["algorithm"]: row for row in bench.rows("my-script") if row["workers"] == 2}
    ssgd, dts = rows["ssgd"], rows["dts-delay12-period4"]
    assert ssgd["step_time_s"] > 2 * 0.1  # gloo on two workers: 2(N-1) round trips per all-reduce
    assert dts["step_time_s"] < ssgd["step_time_s"] / 2
    assert (ssgd["steps"], ssgd["step_times"]) == (32, "step")
    assert len(sums(bench, "ssgd")) == 1  # both ranks ended with the same parameters
    late = sums(bench, "dts-delay12-period4")
    assert max(late) - min(late) < 1e-4  # drained: equal to rounding


def sums(bench, label):
    """Return the distinct sums of parameters with which ranks ended."""
    paths = (bench.folder / "out/my-script/cells").glob(f"{label}-w2-*/rep-0/rank-*.out.log")
    words = [path.read_text().split() for path in paths]
    assert len(words) == 2
    return {float(total) for _, total in words}
