"""The time to an accuracy on the simulated clock: steps, which no network changes, times the step time."""

from __future__ import annotations

import pandas as pd
import pytest
from small_spec import edited, swept

from wanbench.harness.rep.measure import measure
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

VIRTUAL = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]')
DIGITS = ("params = 1000\ntensors = 2\n", 'name = "digits-cnn"\n')
LONG = '[train]\nuntil = "160 steps"\nlr = 0.004\neval_every = 10\ntarget = {target}\n\n[algorithms]'
ALGORITHMS = (
    "sgp = {}", "ssgd = {}", "diloco = { period = 10 }", "sparse = { period = 4 }", "delayed = { delay = 1 }",
    "dts = { delay = 1, period = 2 }", "localsgd = { period = 4 }", "dpsgd = {}",
)  # fmt: skip


def row_of(tmp_path, algorithm, target, rtt):
    folder = tmp_path / f"{target}-{rtt}"
    folder.mkdir()
    changes = [VIRTUAL, DIGITS, ("ssgd = {}", algorithm), ('10ms"]', f'{rtt}"]')]
    (cell,) = swept(edited(*changes, ("[algorithms]", LONG.format(target=target))))
    return measure(cell.repetition(0), VirtualTestbed().open_slot(""), folder, folder, None)


@pytest.mark.long  # the time to a target of means of models is tested each time
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_time_to_target_is_steps_to_target_on_another_network_times_the_step_time(tmp_path, algorithm):
    near, far = row_of(tmp_path, algorithm, 0.8, "1ms"), row_of(tmp_path, algorithm, 0.8, "100ms")
    assert far["step_time_s"] > 1.2 * near["step_time_s"]
    assert far["steps_to_target"] == near["steps_to_target"] > 60
    assert far["time_to_target_s"] == pytest.approx(near["steps_to_target"] * far["step_time_s"], rel=0.03)


def test_a_target_beyond_reach_has_no_time(tmp_path):
    beyond = row_of(tmp_path, "ssgd = {}", 1.0, "10ms")
    assert 0.5 < beyond["accuracy"] < 1
    assert beyond["time_to_target_s"] is beyond["steps_to_target"] is None


@pytest.mark.parametrize(
    "algorithm",
    [
        *(pytest.param(f"{kind} = {{}}", marks=pytest.mark.long) for kind in ("adpsgd", "sgp")),
        "dts = { delay = 4, period = 4 }",
    ],
)
def test_a_mean_of_models_exists_once_the_slowest_machine_has_made_the_step(tmp_path, algorithm):
    uneven = ('step_time = "10ms"', 'step_time = ["10ms", "50ms"]')
    changes = [VIRTUAL, DIGITS, uneven, ("ssgd = {}", algorithm), ("[algorithms]", LONG.format(target=0.8))]
    (cell,) = swept(edited(*changes))
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    evaluations = pd.read_parquet(tmp_path / "evaluations.parquet")
    elapsed_s = (evaluations.end_ns - evaluations.end_ns[0]) / 1e9
    assert elapsed_s.to_list()[1:] == pytest.approx((0.05 * evaluations.step[1:]).to_list(), rel=0.1)
    assert row["time_to_target_s"] == pytest.approx(0.05 * row["steps_to_target"], rel=0.1)
