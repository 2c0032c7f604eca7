"""Installed, in a project that has `harness`, `workloads` and `netprofiles` packages of its own."""

from __future__ import annotations

import json
import os
import zipfile

import pytest
from installed import ROOT, Environment, build_editable_wheel, build_wheel

PACKAGES = ("harness", "workloads", "netprofiles")
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


@pytest.fixture(params=["installed", "editable"])
def environment(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def project(tmp_path):
    for name, text in OWN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    about = {name for name in names if ".dist-info/" in name}
    found = {
        os.path.join(folder, name).removeprefix(f"{ROOT}/")
        for folder, _, files in os.walk(ROOT / "wanbench", followlinks=True)
        for name in files
        if "__pycache__" not in folder
    }
    (manual,) = {name for name in names if name.endswith(".data/data/share/man/man1/wanbench.1")}
    assert set(names) - about - {manual} == found
    # What is read at run time, one of each kind: a rule that left a kind out would leave it out on both sides.
    assert found > {
        "wanbench/py.typed",
        "wanbench/harness/spec/starter.toml",
        "wanbench/harness/spec/experiments/latency-sweep.toml",
        "wanbench/harness/show/papers/dts.toml",
        "wanbench/harness/show/figures/wanbench.mplstyle",
        "wanbench/harness/show/report/page.html.j2",
        "wanbench/harness/show/report/page.css",
        "wanbench/harness/show/report/page.js",
        "wanbench/netprofiles/catalog/world4.toml",
        "wanbench/netprofiles/catalog/aws.csv",
        "wanbench/workloads/loop/inject/sitecustomize.py",
    }
    assert not [name for name in names if name.rpartition("/")[2].startswith(("test_", "conftest"))]


def test_only_wanbench_is_installed(installed):
    (site,) = installed.folder.glob("lib/python3*/site-packages")
    assert [path.name for path in site.iterdir() if path.name in {*PACKAGES, "tests"}] == []
    said = installed.run(installed.folder, "python", "-c", "import wanbench.harness as h; print(h.__file__)")
    assert said.stdout.strip() == str(site / "wanbench" / "harness" / "__init__.py")


def test_a_users_packages_of_the_same_names_are_theirs(environment, project):
    done = environment.run(
        project, "wanbench", "run", "mine.toml", "--testbed", "virtual", "--out", "out", "--no-figures"
    )
    assert (done.returncode, done.stdout) == (0, "out/mine\n"), done.stderr
    rows = json.loads(environment.run(project, "wanbench", "results", "out/mine", "--format", "json").stdout)
    assert sorted((row["algorithm"], row["status"]) for row in rows) == [
        ("mine", "ok"),
        ("one-worker", "ok"),
        ("ssgd", "ok"),
    ]


def test_the_fixture_of_the_plugin_works_beside_them(environment, project):
    done = environment.run(project, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_loop_of_ones_own_imports_ones_own_workloads(environment, project):
    two = ["exec", "--profile", "uniform", "--rtt", "10ms", "-n", "2", "--", environment.program("python"), "train.py"]
    done = environment.run(project, "wanbench", *two)
    assert done.returncode == 0, done.stdout + done.stderr
    place = environment.run(project, "python", "-c", "import wanbench; print(wanbench.__file__)").stdout.strip()
    assert f"agreed on {place}" in done.stdout


def test_smoke_is_measured_and_its_report_drawn(installed, project):
    for _ in range(3):  # on a host that others use
        done = installed.run(project, "wanbench", "run", "smoke", "--out", "out")
        if done.returncode != 4:
            break
    assert (done.returncode, done.stdout) == (0, "out/smoke\n"), done.stderr
    assert list((project / "out" / "smoke" / "figures").glob("*.svg"))
    page = installed.run(project, "wanbench", "report", "out/smoke")
    assert page.returncode == 0, page.stderr
