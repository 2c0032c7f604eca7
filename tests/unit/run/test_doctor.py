"""`doctor`: what this host can do, and the exact fix for what it cannot."""

import errno
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import as_it_was, data, wanbench  # noqa: F401

from wanbench.harness.emulators import choice
from wanbench.harness.errors import HostError
from wanbench.harness.run import doctor
from wanbench.harness.run.doctor import HostCheck, can_run, examine
from wanbench.harness.testbeds.docker import daemon
from wanbench.workloads.process import namespace


def finding(topic):
    (found,) = [one for one in examine() if one.topic == topic]
    return found


WELL = {"namespace": None, "tun": None, "offload": True, "tcp": ["reno"], "priority": True}


@pytest.fixture(autouse=True)
def _no_trials(monkeypatch, tmp_path):
    """Replace the host's answers: these tests check the words."""
    monkeypatch.setattr(doctor, "_tried", lambda: WELL)
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": None)
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": None)
    monkeypatch.setattr(daemon, "why_not", lambda: None)
    monkeypatch.setattr(daemon, "describe", lambda: "daemon 28.2 here")
    monkeypatch.setattr(daemon.Daemon, "image_id", lambda self, name: "sha256:0123456789abcdef")
    monkeypatch.setattr(doctor, "_MODULES", tmp_path)
    monkeypatch.setattr(doctor, "_GOVERNORS", tmp_path)
    monkeypatch.setattr(doctor, "_distribution", lambda: "debian")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.delenv("WANBENCH_IMAGE", raising=False)


@pytest.fixture
def no_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_a_kernel_without_segmentation_offload_is_noted_with_the_consequence(monkeypatch):
    monkeypatch.setattr(doctor, "_tried", lambda: {**WELL, "offload": False})
    device = finding("TUN device")
    assert device.state == "note"
    assert "single packets, about 0.5 Gbit/s per core" in device.text
    assert can_run(examine())


def test_a_host_with_everything_is_all_ok():
    assert {one.state for one in examine()} == {"ok"}
    assert can_run(examine())


NO_NETEM = (
    "netem: this kernel has no netem (CONFIG_NET_SCH_NETEM): sudo modprobe sch_netem, from "
    "linux-modules-extra-$(uname -r) on Ubuntu, kernel-modules-extra on Fedora"
)


def test_a_kernel_without_netem_and_without_modules_has_a_guest_that_has_it(monkeypatch):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": NO_NETEM)
    assert finding("netem") == HostCheck(
        "netem",
        "missing",
        "this kernel has no netem (CONFIG_NET_SCH_NETEM), and no module to load",
        "sh scripts/uml-run.sh wanbench doctor  # User-Mode Linux; install: sh scripts/setup-tests.sh kernel",
        "--emulator relay",
    )
    assert can_run(examine())


def test_an_installed_package_is_not_advised_to_run_scripts_that_it_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_SCRIPTS", tmp_path / "scripts")
    monkeypatch.setattr(doctor, "_SYSTEMD", tmp_path / "systemd")
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": NO_NETEM)
    monkeypatch.setattr(daemon, "why_not", lambda: NO_DAEMON)
    monkeypatch.setattr(shutil, "which", lambda *_args, **_options: "/usr/bin/dockerd")
    assert (finding("netem").fix, finding("Docker").fix) == (None, "sudo service docker start")


@pytest.mark.parametrize(
    ("distribution", "there", "fix"),
    [
        ("debian", True, "sudo modprobe sch_netem  # CONFIG_NET_SCH_NETEM"),
        ("ubuntu", True, "sudo modprobe sch_netem  # CONFIG_NET_SCH_NETEM"),
        ("ubuntu", False, "sudo apt-get install -y linux-modules-extra-6.8-x && sudo modprobe sch_netem"),
        ("fedora", False, "sudo dnf install -y kernel-modules-extra && sudo modprobe sch_netem"),
    ],
)
def test_a_module_is_loaded_after_its_package_is_installed(monkeypatch, tmp_path, distribution, there, fix):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": NO_NETEM)
    monkeypatch.setattr(doctor, "_distribution", lambda: distribution)
    monkeypatch.setattr(platform, "release", lambda: "6.8-x")
    (tmp_path / "6.8-x" / "net").mkdir(parents=True)
    if there:
        (tmp_path / "6.8-x" / "net" / "sch_netem.ko.zst").touch()
    assert finding("netem").fix.partition("  #")[0] == fix.partition("  #")[0]


def test_a_device_without_permission_comes_with_the_udev_line(monkeypatch):
    why = "/dev/net/tun: permission denied; run as root, or: sudo chmod 0666 /dev/net/tun"
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": why)
    assert finding("TUN device").fix == (
        "sudo chmod 0666 /dev/net/tun  # or run as root; to keep it: "
        """echo 'KERNEL=="tun", MODE="0666"' | sudo tee /etc/udev/rules.d/70-tun.rules"""
    )
    assert can_run(examine())  # netem works


def test_a_device_that_exists_and_does_not_open_is_missing(monkeypatch, tmp_path):
    (tmp_path / platform.release()).mkdir()
    why = "/dev/net/tun: no TUN driver: `sudo modprobe tun`; in a container also `--device /dev/net/tun`"
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"tun": why})
    found = finding("TUN device")
    assert (found.state, found.fix) == ("missing", "sudo modprobe tun  # CONFIG_TUN")


def test_without_any_emulator_nothing_can_run(monkeypatch):
    monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns": "no device; modprobe tun")
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": "no netem; modprobe sch_netem")
    assert not can_run(examine())
    result = wanbench("doctor")
    assert result.exit_code == 3
    assert (
        result.stderr == "wanbench: nothing can be emulated here; see the fixes above, or simulate: --testbed virtual\n"
    )


NO_DAEMON = "docker: no daemon at /var/run/docker.sock; start it: sudo systemctl start docker, or use --testbed netns"


@pytest.mark.parametrize(
    ("installed", "systemd", "fix"),
    [
        (True, True, "sudo systemctl start docker"),
        (
            True,
            False,
            "sudo service docker start  # or for one command: sudo sh scripts/with-dockerd.sh wanbench doctor",
        ),
        (False, True, "sudo apt-get install -y docker.io  # Fedora: sudo dnf install -y moby-engine"),
    ],
)
def test_no_daemon_says_how_to_start_one_or_to_get_it(monkeypatch, tmp_path, installed, systemd, fix):
    monkeypatch.setattr(daemon, "why_not", lambda: NO_DAEMON)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: "/usr/sbin/dockerd" if installed else None)
    monkeypatch.setattr(doctor, "_SYSTEMD", tmp_path if systemd else tmp_path / "none")
    found = finding("Docker")
    assert (found.text, found.fix) == ("no daemon at /var/run/docker.sock", fix)
    assert found.meanwhile == "--testbed netns"


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        (
            "docker: /var/run/docker.sock: permission denied; join its group (sudo usermod -aG docker ada, then log in "
            "again), or run as root",
            "sudo usermod -aG docker ada  # then log in again; or run as root",
        ),
        (
            "docker: the daemon at unix:///x runs on another kernel (Docker Desktop 6.6; this is 6.8), out of reach "
            "for links made here; run wanbench there, too: docker compose run --rm wanbench run SPEC",
            "docker compose run --rm wanbench doctor  # run wanbench in a container, too",
        ),
        (
            "docker: the daemon remaps users (userns-remap), so workers cannot share a folder with this process; run "
            "wanbench in a container, too: docker compose run --rm wanbench run SPEC, or use --testbed netns",
            "docker compose run --rm wanbench doctor  # run wanbench in a container, too",
        ),
        ("docker: DOCKER_HOST=tcp://127.0.0.1:1: Connection refused", None),
    ],
)
def test_a_daemon_that_cannot_be_used_comes_with_the_way_around(monkeypatch, why, fix):
    monkeypatch.setattr(daemon, "why_not", lambda: why)
    assert finding("Docker").fix == fix


def test_a_daemon_without_the_image_says_how_to_make_it(monkeypatch):
    def missing(self, name):
        raise HostError(f"docker: no image {name!r} on this host")

    monkeypatch.setattr(daemon.Daemon, "image_id", missing)
    assert finding("image") == HostCheck(
        "image",
        "missing",
        "--testbed docker has no image 'wanbench-worker'",
        "make image  # in a clone of the repository; "
        "without a registry: sudo make base-image-from-debian && make image BASE=wanbench-base",
        "--testbed netns",
    )
    monkeypatch.setenv("WANBENCH_IMAGE", "mine:2")
    assert finding("image").fix == "docker pull mine:2"
    assert can_run(examine())
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": "refused"})
    assert not can_run(examine())


APPARMOR = (
    "new user namespace: /proc/self/uid_map: Operation not permitted (AppArmor's default on Ubuntu 24.04); "
    "run as root, or with the profile that `wanbench doctor` shows"
)
AS_ROOT = 'sudo -E "$(command -v wanbench)" doctor  # run wanbench as root; nothing on the host changes'


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        (
            "new user namespace: Operation not permitted; run as root, or `sudo sysctl -w "
            "kernel.unprivileged_userns_clone=1`",
            f"{AS_ROOT}\nsudo sysctl -w kernel.unprivileged_userns_clone=1"
            "  # lets every program on the host create namespaces, until the next boot",
        ),
        (
            "new user namespace: No space left on device; `sudo sysctl -w user.max_user_namespaces=15000 "
            "user.max_net_namespaces=15000`",
            "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000"
            "  # until the next boot; or run as root",
        ),
        (
            "new user namespace: Invalid argument; this kernel has no user namespaces (CONFIG_USER_NS); run as root",
            AS_ROOT,
        ),
    ],
)
def test_namespaces_that_are_refused_come_with_the_setting_that_allows_them(monkeypatch, no_root, why, fix):
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": why, "tcp": []})
    found = finding("namespaces")
    assert (found.state, found.fix) == ("missing", fix)
    assert found.text == why.partition(";")[0]


def test_apparmor_is_satisfied_before_it_is_switched_off(monkeypatch, no_root, tmp_path):
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": APPARMOR, "tcp": []})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").symlink_to("python3.12")
    as_root, profile, switch_off = finding("namespaces").fix.splitlines()
    assert as_root == AS_ROOT
    write, load = profile.partition("  #")[0].split(" | sudo tee /etc/apparmor.d/wanbench && ")
    assert subprocess.run(["sh", "-c", write], capture_output=True, text=True).stdout == (
        "abi <abi/4.0>,\ninclude <tunables/global>\n"
        f'profile wanbench "{tmp_path}/python3.12" flags=(unconfined) {{ userns, }}\n'
    )
    assert load == "sudo apparmor_parser -r /etc/apparmor.d/wanbench"
    assert profile.endswith(
        "once: allows every program of this Python interpreter (to narrow it: a venv created with --copies)"
    )
    assert switch_off == (
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        "  # last resort: switches this protection off for every program on the host, until the next boot"
    )
    shown = [line.strip().partition(" ")[0] for line in wanbench("doctor").stdout.splitlines() if "sudo" in line]
    assert shown == ["fix:", "or:", "or:"]


def test_the_line_about_apparmor_is_what_a_worker_reports(monkeypatch):
    monkeypatch.setattr(namespace, "_read_sysctl", lambda name: "1" if "apparmor" in name else None)
    assert APPARMOR.endswith(namespace._remedy(errno.EPERM))
    assert APPARMOR.endswith(namespace._remedy(errno.EACCES))


def test_a_host_that_can_emulate_nothing_is_sent_to_the_simulation(monkeypatch):
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": APPARMOR})
    monkeypatch.setattr(daemon, "why_not", lambda: NO_DAEMON)
    found = examine()
    assert not can_run(found)
    assert {one.meanwhile for one in found if one.state == "missing"} == {"--testbed virtual"}


def test_a_host_that_forbids_namespaces_may_still_use_containers(monkeypatch):
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": "refused; run as root", "priority": False})
    assert finding("priority").state == "note"
    assert can_run(examine())
    monkeypatch.setattr(daemon, "why_not", lambda: "docker: no daemon; start it")
    assert not can_run(examine())


def test_slow_processors_and_a_single_one_are_notes(monkeypatch, tmp_path):
    governor = tmp_path / "cpu0" / "cpufreq" / "scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert (finding("processors").state, finding("governor").state) == ("note", "note")
    assert finding("governor").text == "processors change their speed (powersave), so step times vary more"
    assert can_run(examine())


def test_one_stream_of_this_host_carries_a_window_in_a_round_trip(monkeypatch):
    monkeypatch.setattr(doctor, "in_flight_here", lambda: 3.0 * 2**20)
    assert finding("one stream").text == (
        "this host's buffers let one TCP connection carry 503.3 Mbit/s at 50 ms, 167.8 Mbit/s at 150 ms, 83.89 Mbit/s "
        "at 300 ms"
    )


def test_every_fix_is_printed_below_its_finding(monkeypatch):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": "netem: none (OPTION): sudo modprobe it")
    lines = wanbench("doctor").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("missing  netem"))
    assert lines[at].split() == ["missing", "netem", "none", "(OPTION)"]
    assert lines[at + 1].strip() == "fix: sudo modprobe it"
    assert lines[at + 2].strip() == "until then: --emulator relay"


def test_json_has_the_same_findings(monkeypatch):
    assert data("doctor") == json.loads(json.dumps([vars(one) for one in examine()]))


# The programs that a fix may start, and the Debian package of each.
PROGRAMS = {
    "sudo": "sudo",
    "modprobe": "kmod",
    "sysctl": "procps",
    "chmod": "coreutils",
    "tee": "coreutils",
    "echo": "coreutils",
    "printf": "coreutils",
    "apparmor_parser": "apparmor",
    "apt-get": "apt",
    "systemctl": "systemd",
    "service": "init-system-helpers",
    "usermod": "passwd",
    "docker": "docker.io",
    "make": "make",
    "sh": "dash",
    "wanbench": "ours",
}


def every_fix(monkeypatch, tmp_path):
    """Yield the fixes of a host that lacks everything, each thing in every way."""
    (tmp_path / platform.release()).mkdir()
    governor = tmp_path / "cpu0" / "cpufreq" / "scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave")
    for number in (errno.EPERM, errno.ENOSPC, errno.EINVAL):
        why = f"new user namespace: no{namespace._remedy(number)}"
        monkeypatch.setattr(
            doctor,
            "_tried",
            lambda why=why: {"namespace": why, "tun": None, "offload": True, "tcp": [], "priority": False},
        )
        yield from (one.fix for one in examine())
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"namespace": APPARMOR})
    yield from (one.fix for one in examine())
    monkeypatch.setattr(doctor, "_tried", lambda: WELL | {"tcp": []})
    for why in ("denied", "gone"):
        monkeypatch.setattr(choice, "why_no_relay", lambda testbed="netns", why=why: f"/dev/net/tun: {why}; do")
        yield from (one.fix for one in examine())
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": NO_NETEM)
    for name in ("debian", "ubuntu"):
        monkeypatch.setattr(doctor, "_distribution", lambda name=name: name)
        yield from (one.fix for one in examine())
    (tmp_path / platform.release()).rmdir()
    yield from (one.fix for one in examine())
    for why in (NO_DAEMON, f"docker: /x: permission denied; {daemon._admission('/')}", "on another kernel"):
        monkeypatch.setattr(daemon, "why_not", lambda why=why: why)
        yield from (one.fix for one in examine())
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    yield from (one.fix for one in examine())


def test_every_fix_is_a_line_for_a_shell_whose_programs_debian_has(monkeypatch, tmp_path, no_root):
    fixes = {line for fix in every_fix(monkeypatch, tmp_path) if fix is not None for line in fix.splitlines()}
    monkeypatch.undo()
    assert len(fixes) >= 12
    for fix in fixes:
        assert subprocess.run(["sh", "-nc", fix], capture_output=True).returncode == 0, fix
        for part in re.split(r"&&|\|", fix.partition("  #")[0]):
            words = shlex.split(part.replace('"$(command -v wanbench)"', "wanbench").replace(" -E ", " "))
            for program in words[:2] if words[0] == "sudo" else words[:1]:
                assert program in PROGRAMS, fix
                listed = subprocess.run(["dpkg", "-L", PROGRAMS[program]], capture_output=True, text=True)
                if listed.returncode == 0:  # the package is installed here
                    assert any(line.endswith(f"bin/{program}") for line in listed.stdout.splitlines()), program


def test_scripts_and_targets_that_a_fix_names_exist(monkeypatch, tmp_path, no_root):
    root = Path(__file__).resolve().parents[3]
    goals = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.M))
    for fix in filter(None, every_fix(monkeypatch, tmp_path)):
        for script in re.findall(r"scripts/[\w.-]+", fix):
            assert (root / script).is_file(), fix
        for goal in re.findall(r"\bmake ([\w-]+)", fix):
            assert goal in goals, fix
