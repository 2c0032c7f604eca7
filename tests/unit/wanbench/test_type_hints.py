"""A user's program is checked by mypy --strict against the package's own type hints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import torch
import wanbench
from wanbench import DTS, Run, Spec, TopK, Wrapped, attach, wrap

def measure() -> float:
    run: Run = wanbench.run("smoke", testbed="virtual", settings={"run.repeats": 1}, out="results")
    wanbench.run(Spec.from_dict({"schema": 1}), jobs=2)
    names: list[str] = [str(row["algorithm"]) for row in run.rows()]
    run.report(), run.figure("scalability").figure.axes, len(run.figures())
    return float(run.best()["scalability"].max()) + len(names)

def train(model: torch.nn.Module) -> Wrapped:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrap(model, optimizer, "dts", delay=4, period=4)
    attach(torch.nn.parallel.DistributedDataParallel(model), optimizer, "dts", delay=4, period=4).final()
    return wrap(model, optimizer, DTS(delay=4, period=4, compression=TopK(0.01)))
"""
WRONG = """
import wanbench

wanbench.run("smoke", testbd="virtual")
wanbench.DTS(delay="4", period=4)
wanbench.Spec("smoke")
wanbench.foo
"""


@pytest.mark.long  # `make lint` checks the types of the packages each time
def test_a_users_program_passes_and_its_mistakes_are_found(tmp_path):
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    # The settings and the cache of `make lint`: whichever comes first reads torch's hints for both.
    settings = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    command = [sys.executable, "-m", "mypy", *settings]
    done = subprocess.run(
        [*command, "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    found = {":".join(line.split(":")[:2]) for line in done.stdout.splitlines()[:-1]}
    assert found == {f"wrong.py:{number}" for number in (4, 5, 6, 7)}, done.stdout + done.stderr
