"""The pytest plugin in a separate project and a separate environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_session import patiently

ROOT = Path(__file__).parents[2]
TESTS = """
import sys

import pytest

TINY = {"params": 1_000_000, "tensors": 20, "step_time": "30ms", "payload_scale": 0.1}


def test_nothing_heavy_is_imported_before_it_is_needed():
    assert not {"torch", "pandas", "wanbench.harness.plan.cell"} & sys.modules.keys()


def test_late_averages_hide_the_atlantic(wan):
    result = wan.run(TINY, workers=2, rtt="40ms", rate="1Gbit", algorithm={"dts": {"delay": 4, "period": 2}})
    assert result.scalability > 0.99
    assert result.messages_sent == 30
    assert (result.folder / "manifest.json").is_file()


@pytest.mark.wan(workers=2, rtt="40ms")
def test_ssgd_does_not(wan):
    assert wan.run(TINY, rate="1Gbit").scalability > 0.7


def test_on_a_named_profile(wan):
    assert 0 < wan.run("resnet50-v100", workers=4, profile="world4", payload_scale=0.005).scalability < 0.7


def test_a_typo_is_one_line(wan):
    wan.run(TINY, workers=2, rrt="40ms")


def test_a_cell_that_fails_fails_with_its_reason(wan):
    wan.run(TINY, workers=2, rtt="1ms", algorithm={"mine": {"kind": "mine:Broken"}})


def test_where_there_is_no_docker(wan):
    wan.run(TINY, workers=2, rtt="1ms", testbed="docker")
"""
BROKEN = """
from wanbench.workloads.algorithms.ssgd import SSGD


class Broken(SSGD):
    kind = "broken"

    def gradient(self, g):
        raise ValueError("it broke")
"""
OWN = """
import sys


def test_a_command_of_ones_own_pays_for_its_round_trips(wan):
    result = wan.run([sys.executable, "volley.py"], workers=2, rtt="60ms", testbed="netns")
    assert 0.2 < result.scalability < 0.4  # steps of 20 ms, and a round trip in each


def test_on_named_sites_it_is_less(wan):
    slower = {"network.rate_scale": 0.01}  # 50 Mbit/s between Oregon and Ohio
    measured = wan.run([sys.executable, "volley.py"], workers=2, profile="world4", testbed="netns", settings=slower)
    assert measured.scalability > 0.7
"""
VOLLEY = """
import os
import socket
import time

import wanbench

alone, first = os.environ["WORLD_SIZE"] == "1", os.environ["RANK"] == "0"
place = (os.environ["WANBENCH_ADDRESSES"].split(",")[0], 7000)
peer = None
if not alone and first:
    peer = socket.create_server(place).accept()[0]
while not alone and peer is None:
    try:
        peer = socket.create_connection(place)
    except ConnectionRefusedError:
        time.sleep(0.05)
for _ in range(30):
    time.sleep(0.02)
    if peer is not None and first:
        peer.sendall(b"x")
    if peer is not None:
        assert peer.recv(1)
    if peer is not None and not first:
        peer.sendall(b"y")
    wanbench.step()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Make a folder with tests, and `.venv` with the files and the metadata of wanbench."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_mine.py").write_text(TESTS)
    (folder / "mine.py").write_text(BROKEN)
    (folder / "own.py").write_text(OWN)
    (folder / "volley.py").write_text(VOLLEY)
    (folder / "pytest.ini").write_text("[pytest]\nwan_testbed = virtual\nfilterwarnings = error\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    (site,) = (folder / ".venv" / "lib").glob("python3*/site-packages")
    packages = sysconfig.get_paths()["purelib"]
    (site / "borrowed.pth").write_text(f"{ROOT}\n{packages}\n")
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = site / f"wanbench-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wanbench\nVersion: {about['version']}\n")
    points = "\n".join(f"{name} = {target}" for name, target in about["entry-points"]["pytest11"].items())
    (info / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")
    return folder


def run(project, *arguments):
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTEST_ADDOPTS"}}
    environment["DOCKER_HOST"] = "unix:///nonexistent.sock"
    command = [str(project / ".venv" / "bin" / "python"), "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)


def measured(project, *arguments):
    """Run the tests, and repeat them while the host is too busy."""
    return patiently(lambda: run(project, *arguments), lambda done: ": invalid: " in done.stdout)


def test_scalability_is_an_assertion_in_any_test_suite(project):
    done = run(project, "--junit-xml", "j.xml", "--strict-markers", "-rs")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 3 passed, 1 skipped" in done.stdout
    outcome = {case.get("name"): case for case in ElementTree.parse(project / "j.xml").iter("testcase")}
    failures = {name: case.find("failure") for name, case in outcome.items() if case.find("failure") is not None}
    assert failures.keys() == {
        "test_ssgd_does_not",
        "test_a_typo_is_one_line",
        "test_a_cell_that_fails_fails_with_its_reason",
    }
    assert failures["test_ssgd_does_not"].get("message").startswith("AssertionError: assert 0.35")
    typo = failures["test_a_typo_is_one_line"].get("message")
    assert typo.startswith("Failed: wanbench: wan.run: rrt: unknown argument; did you mean 'rtt'? (known: workers, ")
    broke = failures["test_a_cell_that_fails_fails_with_its_reason"].text
    assert re.match(r"wanbench: mine w2 testbed=virtual 1ms: failed: worker [01]: it broke\n", broke)
    assert "    ValueError: it broke\n" in broke
    assert outcome["test_where_there_is_no_docker"].find("skipped").get("message").startswith("wanbench: ")
    reported = [p.get("value") for p in outcome["test_ssgd_does_not"].iter("property") if p.get("name") == "wanbench"]
    assert reported == ["ssgd w2 testbed=virtual 40ms rate=1Gbit: scalability 0.358, step 0.0839 s"]
    listed = done.stdout.partition("= wanbench =")[2]
    assert reported[0] in listed
    assert "dts-d4-p2 w2 testbed=virtual 40ms rate=1Gbit: scalability 1.000" in listed


def test_a_host_that_cannot_emulate_fails_tests_that_require_emulation(project):
    done = run(project, "--wan-missing", "fail", "-k", "no_docker")
    assert done.returncode == 1
    assert "FAILED test_mine.py::test_where_there_is_no_docker - Failed: wanbench: " in done.stdout


def test_a_wrong_setting_is_a_usage_error(project):
    done = run(project, "-o", "wan_missing=maybe")
    assert (done.returncode, done.stderr.strip()) == (4, "ERROR: wan_missing = maybe: expected skip or fail")


@pytest.mark.timed
def test_a_users_program_is_measured_on_an_emulated_network(project):
    done = measured(project, "own.py", "--wan-missing", "fail")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"volley w2 testbed=netns 60ms: scalability 0\.[23]\d\d, step 0\.0[89]", done.stdout)
    assert re.search(r"FAILED own.py::test_on_named_sites_it_is_less - AssertionError: assert 0\.", done.stdout)


@pytest.mark.long  # the test before it measures each time
@pytest.mark.timed
def test_the_example_of_the_guide_passes_on_an_emulated_network(project):
    (example,) = re.findall(r"```python\n(def test_.*?)```", (ROOT / "docs/how-to/ci.md").read_text(), re.DOTALL)
    (project / "example.py").write_text(example)
    done = measured(project, "example.py", "--wan-testbed", "netns", "--wan-missing", "fail")
    assert done.returncode == 0, done.stdout + done.stderr
