"""`doctor`: what this host can do, and the exact fix for what it cannot."""

import json

import pytest
from command_line import as_it_was, data, wanbench  # noqa: F401

from harness import doctor
from harness.doctor import Finding, can_run, examine
from harness.emulators import choice
from harness.testbeds import docker_host


def finding(topic):
    (found,) = [one for one in examine() if one.topic == topic]
    return found


@pytest.fixture(autouse=True)
def _no_trials(monkeypatch):
    """The host's own answers, made up: these tests are about the words."""
    monkeypatch.setattr(doctor, "_tried", lambda: {"namespace": None, "tcp": ["reno"], "realtime": True})
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": None)
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": None)
    monkeypatch.setattr(docker_host, "why_not", lambda: None)
    monkeypatch.setattr(docker_host, "describe", lambda: "daemon 28.2 here")


def test_a_host_with_everything_is_all_ok():
    assert {one.state for one in examine() if one.topic != "governor"} == {"ok"}
    assert can_run(examine())


def test_a_kernel_without_netem_names_option_and_package_and_what_works(monkeypatch):
    why = (
        "netem: this kernel has no netem (CONFIG_NET_SCH_NETEM): sudo modprobe sch_netem, which is in"
        " linux-modules-extra-6.8; or use --emulator relay"
    )
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": why)
    assert finding("netem") == Finding(
        "netem",
        "missing",
        "this kernel has no netem (CONFIG_NET_SCH_NETEM)",
        "sudo modprobe sch_netem, which is in linux-modules-extra-6.8",
        "--emulator relay",
    )
    assert can_run(examine())


def test_a_closed_device_comes_with_the_udev_line(monkeypatch):
    why = "/dev/net/tun: permission denied; run as root, or: sudo chmod 0666 /dev/net/tun"
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": why)
    fix = finding("TUN device").fix
    assert fix.startswith("run as root, or: sudo chmod 0666 /dev/net/tun; to keep it: echo ")
    assert 'KERNEL=="tun", MODE="0666"' in fix
    assert can_run(examine())  # netem works


def test_without_any_emulator_nothing_can_run(monkeypatch):
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": "no device; modprobe tun")
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": "no netem; modprobe sch_netem")
    assert not can_run(examine())
    result = wanbench("doctor")
    assert result.exit_code == 3
    assert result.stderr == "wanbench: nothing can be emulated here; see the fixes above\n"


def test_no_daemon_says_how_to_start_one(monkeypatch):
    why = "docker: no daemon at /var/run/docker.sock; start it: sudo systemctl start docker, or use --testbed netns"
    monkeypatch.setattr(docker_host, "why_not", lambda: why)
    found = finding("Docker")
    assert found.found == "no daemon at /var/run/docker.sock"
    assert found.fix == "start it: sudo systemctl start docker"
    assert found.meanwhile == "--testbed netns"


def test_a_host_that_forbids_namespaces_may_still_use_containers(monkeypatch):
    why = "new user namespace: Operation not permitted; run as root"
    answers = {"namespace": why, "tcp": [], "realtime": False}
    monkeypatch.setattr(doctor, "_tried", lambda: answers)
    assert finding("namespaces").fix == "run as root"
    assert finding("priority").state == "note"
    assert can_run(examine())
    monkeypatch.setattr(docker_host, "why_not", lambda: "docker: no daemon; start it")
    assert not can_run(examine())


def test_every_fix_is_printed_below_its_finding(monkeypatch):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": "netem: none (OPTION): modprobe it")
    lines = wanbench("doctor").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("missing  netem"))
    assert lines[at].split() == ["missing", "netem", "none", "(OPTION)"]
    assert lines[at + 1].strip() == "fix: modprobe it"
    assert lines[at + 2].strip() == "meanwhile: --emulator relay"


def test_as_json_it_has_the_same(monkeypatch):
    assert data("doctor") == json.loads(json.dumps([vars(one) for one in examine()]))
