"""Messages about unusable images, and about containers without a TUN device."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import host_image
import pytest
from cli_session import by_numbers
from docker.types import Mount

import wanbench.harness.testbeds.docker.testbed as testbed
from wanbench.harness.testbeds.base import Group

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
SPEC = by_numbers("image", "ssgd = {}", run='testbed = "docker"')


@pytest.fixture
def make(api):
    """Import an image of these folders with these settings; it is removed at the end."""
    made = []

    def image(name: str, **settings):
        host_image.make(api, name, **settings)
        made.append(name)
        return name

    yield image
    for name in made:
        api.remove_image(name, force=True)


def refusal(bench, image: str) -> str:
    bench.spec(SPEC + f'\n[containers]\nimage = "{image}"\n')
    result = bench.run(*RUN)
    assert (result.code, result.out) == (3, "")
    assert bench.containers() == []
    return result.last_line


def test_a_missing_image_is_named_with_the_remedy(bench, monkeypatch):
    assert refusal(bench, "not-there") == "wanbench: docker: no image 'not-there' on this host; docker pull not-there"
    monkeypatch.delenv("WANBENCH_IMAGE")
    bench.spec(SPEC)
    assert bench.run(*RUN).last_line == (
        "wanbench: docker: no image 'wanbench-worker' on this host; "
        "build it: make image, or name yours in WANBENCH_IMAGE"
    )


def test_an_image_of_other_code_is_refused(bench, make, tmp_path):
    shutil.copytree(host_image.CHECKOUT / "wanbench", tmp_path / "old" / "wanbench")
    with (tmp_path / "old/wanbench/workloads/seeding.py").open("a") as source:
        source.write("# another version\n")
    image = make("wanbench-test-old", folders={"old": tmp_path / "old"}, python_path="/old")
    line = refusal(bench, image)
    assert line.startswith("wanbench: wanbench-")
    assert line.endswith(": the image has another version of wanbench; build it again")


def test_an_image_without_torch_runs_programs_and_is_refused_for_training_with_pythons_message(bench, make):
    image = make(
        "wanbench-test-bare", python_path="/nowhere", path="/usr/bin:/bin:" + str(Path(os.sys.base_prefix) / "bin")
    )
    line = refusal(bench, image)
    assert line == (
        "wanbench: worker 0: No module named 'torch' in its image; expected an image with Python 3.11 or newer, torch "
        "and numpy"
    )
    bench.folder.chmod(0o755)
    two = ("exec", "--profile", "uniform", "--rtt", "20ms", "-n", "2", "--testbed", "docker", "--image", image)
    result = bench.run(*two, "--", "true")
    assert result.code == 0, result.err


def test_an_image_without_python_is_refused(bench, make):
    line = refusal(bench, make("wanbench-test-empty", path="/nowhere"))
    assert line.startswith("wanbench: docker: a container does not start: ")
    assert '"python3": executable file not found in $PATH' in line


def test_a_missing_processor_is_refused_with_the_daemons_message(bench, image):
    bench.spec(SPEC + '\n[containers]\ncpuset = "999"\n')
    result = bench.run(*RUN)
    assert result.code == 3
    assert result.last_line.startswith("wanbench: docker: worker 0: Requested CPUs are not available")


@pytest.mark.long  # other things that are missing are refused each time
def test_congestion_control_that_is_not_loaded_is_refused(bench):
    bench.spec(SPEC.replace("reno", "nonesuch"))
    assert "tcp congestion 'nonesuch': not loaded; use one of " in bench.run(*RUN).err


def test_without_a_tun_device_a_container_has_no_capability_at_all(tmp_path, monkeypatch, api):
    product = testbed.host_options

    def host_options(*parts):
        made = product(*parts)
        made["mounts"] += [Mount(target=p, source=p, type="bind", read_only=True) for p in host_image.mounted()]
        return made

    monkeypatch.setattr(testbed, "host_options", host_options)
    folder = tmp_path / "wanbench-namespaces"
    folder.mkdir()
    made = testbed.DockerTestbed(folder)
    try:
        starter = testbed.DockerStarter(made)
        worker, descriptor = starter.start_worker(0, "netns", Group(1, tcp=(("congestion", "reno"),)))
        (container,) = [api.inspect_container(c["Id"]) for c in api.containers()]
        pid = container["State"]["Pid"]
        assert os.fstat(descriptor).st_ino == os.stat(f"/proc/{pid}/ns/net").st_ino
        os.close(descriptor)
        assert container["HostConfig"]["CapAdd"] in (None, [])
        assert not container["HostConfig"]["Devices"]
        capabilities = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Cap")]
        assert {line.split()[1] for line in capabilities} == {"0" * 16}
        worker.kill()
        worker.channel.close()
    finally:
        made.close()
    assert api.containers(all=True) == []
