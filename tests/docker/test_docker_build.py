"""`make image` without a registry, and a run with its image: takes minutes, and packages from Debian and PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import host_image
import pytest
from cli_session import WANBENCH

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(api):
    """Return the images that `make image` builds on a base of Debian packages."""
    for goal in ("base-image-from-debian", "image"):
        done = subprocess.run(
            ["make", goal, "BASE=wanbench-base", f"PYTHON={sys.base_prefix}/bin/python3"],
            cwd=host_image.CHECKOUT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
    return {name: api.inspect_image(name) for name in ("wanbench-worker", "wanbench")}


def test_images_are_small_and_no_process_in_a_worker_is_root(built):
    assert built["wanbench-worker"]["Size"] < 1.5e9
    assert built["wanbench"]["Size"] < 2e9
    assert built["wanbench-worker"]["Config"]["User"] == "65532:65532"


def test_doctor_finds_the_image_that_its_fix_built(built, bench, monkeypatch):
    monkeypatch.delenv("WANBENCH_IMAGE")
    findings = json.loads(bench.run("doctor", "--json", program=WANBENCH).out)
    (found,) = [finding for finding in findings if finding["topic"] == "image"]
    short = built["wanbench-worker"]["Id"].removeprefix("sha256:")[:12]
    assert found["state"] == "ok"
    assert f"wanbench-worker ({short})" in found["found"]


def test_smoke_runs_on_the_built_image(built, bench, monkeypatch):
    monkeypatch.delenv("WANBENCH_IMAGE")
    result = bench.run("run", "smoke", "--testbed", "docker", "--out", "out", program=WANBENCH)
    if result.code == 4 and " FAILED: " not in result.err:
        result = bench.run("run", "smoke", "--testbed", "docker", "--out", "out", program=WANBENCH)
    assert result.code == 0, result.err
    assert {row["image"] for row in bench.rows("smoke")} == {built["wanbench-worker"]["Id"]}


def test_the_image_of_the_controller_runs_wanbench(built, api):
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "wanbench", "list", "experiments"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "world4" in done.stdout


STOCK = """
FROM wanbench-worker
USER 0:0
RUN rm -r /wanbench
WORKDIR /
ENV PYTHONPATH=
ENTRYPOINT []
"""


def test_an_image_that_has_python_and_torch_but_no_wanbench_is_enough(built, bench, monkeypatch):
    subprocess.run(["docker", "build", "-q", "-t", "wanbench-test-stock", "-"], input=STOCK, text=True, check=True,
                   capture_output=True, env=os.environ | {"DOCKER_BUILDKIT": "0"})  # fmt: skip
    try:
        (bench.folder / "train.py").write_text((host_image.CHECKOUT / "examples/train.py").read_text())
        bench.folder.chmod(0o755)
        network = ["--profile", "uniform", "--rtt", "20ms", "-n", "2", "--testbed", "docker"]
        result = bench.run(
            "exec", *network, "--image", "wanbench-test-stock", "--", "python3", "train.py", program=WANBENCH
        )
        assert result.code == 0, result.err
        assert "10 steps (optimizer.step())" in result.err
    finally:
        subprocess.run(["docker", "rmi", "-f", "wanbench-test-stock"], check=True, capture_output=True)
