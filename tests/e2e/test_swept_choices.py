"""A sweep over the collective and a key of the user's own script, from the spec to the answer."""

from __future__ import annotations

import json
import sys

import pytest
from recipes import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.long
def test_one_spec_says_which_collective_and_bucket_size_suit_a_script(bench):
    script = (EXAMPLES / "buckets.py").read_text()
    (bench.folder / "buckets.py").write_text(script.replace("STEPS = 12", "STEPS = 6"))
    spec = bench.spec((EXAMPLES / "buckets.toml").read_text().replace('"python"', json.dumps(sys.executable)))
    narrow = ("--only", "rtt=100ms", "--only", "congestion=cubic", "--set", "run.repeats=1")
    run = bench.start("run", spec, "--out", "out", *narrow)
    result = run.wait(timeout_s=600)
    assert result.code == 0, result.err
    drawn = {path.name for path in (bench.folder / "out/buckets/figures").iterdir()}
    assert "step-time.svg" in drawn
    assert not any(name.startswith("scalability") for name in drawn)  # one worker needs almost no time
    pivot = bench.start("results", "buckets", "--out", "out", "--format", "pivot").wait(timeout_s=60).out
    first = pivot.splitlines()[0]
    assert "direct, bucket" in first.split(" is fastest")[0]  # gloo makes rounds of at most 1 MiB
    assert "collective direct is faster than gloo (" in first
    names = [line.split("  ")[0] for line in pivot.splitlines()[-4:]]
    assert names == ["direct, bucket 1", "direct, bucket 25", "gloo, bucket 1", "gloo, bucket 25"]
    compared = bench.start("compare", "buckets", "--out", "out", "--by", "bucket", "--no-figures").wait(timeout_s=60)
    assert "bucket 25 against bucket 1: " in compared.out
