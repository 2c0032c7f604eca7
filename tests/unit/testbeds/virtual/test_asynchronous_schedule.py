"""The schedule of asynchronous local SGD against that of its authors' example, on a network without delay.

Oracle: google-deepmind/asyncdiloco, AsyncLocalSGDToyExample.ipynb. Its workers all make 20 local steps per round, and
its scheduler knows when they will finish; a server has to predict it.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from small_spec import edited, swept

from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

SPEC = [
    ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]'),
    ("params = 1000\ntensors = 2\n", "params = 4\ntensors = 2\nstep_cv = 0.0\n"),
    ('rate = "1Gbit"\n', ""),
    ('10ms"]', '0ms"]'),
    ("[2]", "[4]"),
]
STEP_S = (0.58, 0.75, 1.51, 3.33)
PERIOD = 20
TOTALS = (800, 1600, 2400, 3200)


def trained(algorithm, *, steps, step_s=STEP_S, shuffle=None):
    """Simulate four workers with these times per step."""
    (cell,) = swept(edited(*SPEC, ("ssgd = {}", algorithm)))
    each = [
        replace(job, steps=steps, workload={**job.workload, "step_time": f"{step_s[job.rank]}s"})
        for job in cell.repetition(0).jobs
    ]
    return simulate(each, cell.emulated_network, Tcp(ramp=False), shuffle=shuffle)


def ends_s(run, folder, totals=TOTALS, period=PERIOD):
    """When the workers had made this many steps in whole rounds, together."""
    run.steps.write(folder / "steps.parquet")
    rows = pd.read_parquet(folder / "steps.parquet")
    begin_ns = min(rows["end_ns"] - (rows["step_time_s"] * 1e9).round())
    finished = sorted(
        (end_ns - begin_ns) / 1e9 - stall_s
        for end_ns, stall_s in rows[rows["step"] % period == period - 1][["end_ns", "stall_s"]].itertuples(index=False)
    )
    return [finished[total // period - 1] for total in totals]


@pytest.mark.parametrize(
    ("max_wait", "expected"),
    [("500ms", [209.0, 406.4, 603.8, 801.4]), ("0s", [208.8, 405.0, 603.2, 800.4])],
)
def test_updates_arrive_as_in_the_published_example(tmp_path, max_wait, expected):
    run = trained(f"async-local-sgd = {{ period = 20, dynamic = false, max_wait = '{max_wait}' }}", steps=1420)
    assert ends_s(run, tmp_path) == pytest.approx(expected, abs=0.1)


def test_a_synchronous_round_takes_as_long_as_the_slowest_worker(tmp_path):
    run = trained("diloco = { period = 20 }", steps=40)
    assert ends_s(run, tmp_path, [80, 160]) == pytest.approx([66.6, 133.2], abs=0.01)
