"""`exec --describe`: turn the measured steps of a real script into a workload."""

import re
import sys
import tomllib

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.describe import Description, describe, summarised
from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.spec.experiment import Spec

MS = 1_000_000
MODEL = {"params": 650, "tensors": 2}
SCRIPT = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.randn(4, 64)).sum().backward()
    time.sleep(0.02)
    optimizer.step()
print("out", flush=True)
dist.destroy_process_group()
"""


def ends(durations_ms):
    now, found = 0, [0]
    for duration in durations_ms:
        now += round(duration * MS)
        found.append(now)
    return found


def test_the_first_steps_are_left_out():
    found = summarised(ends([500] * 5 + [20] * 30), MODEL, 100)
    assert (found.step_time_s, found.step_cv, found.steps) == (0.02, 0, 30)


def test_the_mean_includes_every_step_and_the_variation_leaves_out_outliers():
    found = summarised(ends([20] * 5 + [20] * 38 + [400, 20]), MODEL, 100)
    assert found.step_time_s == pytest.approx((39 * 0.02 + 0.4) / 40)
    assert found.step_cv == 0


def test_too_few_steps_are_reported_in_one_line():
    with pytest.raises(SpecError, match=r"^11 steps were seen, expected at least 26; let the script run longer$"):
        summarised(ends([20] * 10), MODEL, 100)


def test_a_script_without_steps_is_reported_in_one_line():
    with pytest.raises(SpecError, match=r"^no step was seen: steps of torch's optimizers are detected,"):
        summarised([], None, 100)


def test_the_table_is_a_workload_of_a_spec(tmp_path):
    table = Description(650, 2, 0.0213, 0.05, 34, 300).to_toml(["python", "a\nb.py"])
    assert tomllib.loads(table)["workload"] == {"params": 650, "tensors": 2, "step_time": "21.300ms", "step_cv": 0.05}
    rest = '[algorithms]\nssgd = {}\n[sweep]\nrtt = ["10ms"]\n'
    spec = Spec.from_toml(f'schema = 1\nname = "x"\n{table}{rest}', "x.toml")
    assert len(expand(spec, "x.toml")) == 2


@pytest.mark.long  # such a script runs on an emulated network each time
def test_a_data_parallel_script_is_measured_alone_and_unchanged_and_the_table_printed(tmp_path, capfd):
    (tmp_path / "train.py").write_text(SCRIPT)
    told = wanbench("exec", "--describe", "--", sys.executable, "train.py").stdout
    workload = tomllib.loads(told)["workload"]
    assert (workload["params"], workload["tensors"]) == (650, 2)
    assert float(workload["step_time"].removesuffix("ms")) > 20
    steps, memory_mib = map(int, re.search(r"^# (\d+) steps, (\d+) MiB of memory$", told, re.M).groups())
    assert steps == 34
    assert memory_mib > 50
    assert capfd.readouterr().out == ""  # stdout holds only the table


def test_without_it_a_network_is_needed():
    assert "Missing option '--profile'" in refused("exec", "--", "true")
    assert "Missing option '-n' / '--workers'" in refused("exec", "--profile", "world4", "--", "true")


def test_a_script_that_fails_is_reported_in_one_line(tmp_path):
    with pytest.raises(HostError, match=r"python\S* ended with status 3; nothing was measured$"):
        describe([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
    with pytest.raises(HostError, match=r"^no-such-program: No such file or directory$"):
        describe(["no-such-program"], tmp_path)
