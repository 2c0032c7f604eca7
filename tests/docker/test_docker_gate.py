"""`wanbench check` between two images: their contents can differ, and a slowdown is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import host_image
import pytest
from cli_session import CARRIED, by_numbers

HERE = Path(host_image.__file__).parent
# The image must have our packages unchanged, so this changes what they find in it.
SLOW = """
import sys

if any("wanbench.workloads.process.container" in argument for argument in sys.orig_argv):
    import time

    from wanbench.workloads.algorithms.ssgd import SSGD

    prompt = SSGD.gradient

    def late(self, g):
        averaged = prompt(self, g)
        time.sleep(0.02)
        return averaged

    SSGD.gradient = late
"""


@pytest.fixture
def slower(api, tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    name = f"wanbench-test-slow-{os.getpid()}"
    host_image.make(api, name, folders={"slow": tmp_path / "slow"}, python_path=f"/slow:{host_image.CHECKOUT}")
    yield name
    api.remove_image(name, force=True)


@pytest.mark.timed
@pytest.mark.long  # on a busy host, a comparison takes many repetitions
def test_an_image_that_is_slower_is_a_regression_and_its_other_cells_are_not(bench, image, slower, monkeypatch):
    bench.spec(by_numbers("images", "ssgd = {}\nsparse = { period = 4 }", run='testbed = "docker"', network=CARRIED))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent / 'side'}:{HERE}")  # for the runs of both sides
    sides = ("--base", f"image:{image}", "--head", f"image:{slower}")
    result = bench.start("check", "spec.toml", "--allow-no-code", *sides, "--json").wait(900)
    assert result.code == 1, result.out + result.err
    verdicts = {cell["cell"]: cell["verdict"] for cell in json.loads(result.out)["cells"]}
    assert verdicts["ssgd w2 10ms"] == "regressed"
    assert verdicts["sparse-p4 w2 10ms"] in {"unchanged", "inconclusive"}
    assert bench.containers() == []
