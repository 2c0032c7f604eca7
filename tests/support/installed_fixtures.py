"""Fixtures: an installed wanbench, and a project with its own `harness`, `workloads` and `netprofiles` packages."""

from __future__ import annotations

import pytest
from installed import Environment, build_editable_wheel, build_wheel

OWN = {
    "harness/__init__.py": "OURS = 'nothing to do with wanbench'\n",
    "harness/sync.py": """
from wanbench.workloads.algorithms.ssgd import SSGD


class Mine(SSGD):
    kind = "mine"
""",
    "workloads/__init__.py": "",
    "workloads/model.py": """
import torch


def make():
    return torch.nn.Linear(20, 4)
""",
    "netprofiles/__init__.py": "HOME = 'tokyo'\n",
    "mine.toml": """
schema = 1
name = "mine"
workload = { params = 1_000_000, tensors = 20, step_time = "30ms", payload_scale = 0.1 }
network = { rate = "1Gbit", tcp = { congestion = "reno", slow_start_after_idle = false } }
algorithms = { ssgd = {}, mine = { kind = "harness.sync:Mine" } }
sweep = { workers = [2], rtt = ["10ms"] }
run = { repeats = 1 }
""",
    "test_mine.py": """
from harness import OURS
from netprofiles import HOME
from workloads.model import make


def test_late_averages_hide_the_atlantic(wan):
    tiny = {"params": 1_000_000, "tensors": 20, "step_time": "30ms", "payload_scale": 0.1}
    algorithm = {"dts": {"delay": 4, "period": 2}}
    result = wan.run(tiny, workers=2, rtt="40ms", rate="1Gbit", testbed="virtual", algorithm=algorithm)
    assert result.scalability > 0.99
    assert (OURS, HOME, make().in_features) == ("nothing to do with wanbench", "tokyo", 20)
""",
    "train.py": """
import torch
import torch.distributed as dist
from workloads.model import make

import wanbench

dist.init_process_group("gloo")
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = wanbench.wrap(model, optimizer, wanbench.DTS(delay=2, period=2))
for step in range(8):
    optimizer.zero_grad()
    model(torch.full((8, 20), float(dist.get_rank()))).square().mean().backward()
    optimizer.step()
training.drain()
mean = model.weight.detach().clone()
dist.all_reduce(mean)
torch.testing.assert_close(mean / dist.get_world_size(), model.weight)
if dist.get_rank() == 0:
    print("agreed on", wanbench.__file__)
""",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Environment.make(tmp_path_factory.mktemp("installed") / "venv", wheel)


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    wheel = build_editable_wheel(tmp_path_factory.mktemp("editable-wheel"))
    return Environment.make(tmp_path_factory.mktemp("editable") / "venv", wheel)


@pytest.fixture
def project(tmp_path):
    for name, text in OWN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path
