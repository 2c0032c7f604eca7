"""Check what this host can do: one finding per line, with the exact fix and what works without it.

A fix is one or more lines for a shell, the best first, each with a remark after `#`. It is None if no command helps.
"""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from wanbench.harness.emulators import choice
from wanbench.harness.errors import HostError
from wanbench.harness.process import child
from wanbench.harness.run.manifest import content
from wanbench.harness.testbeds.docker import daemon
from wanbench.harness.testbeds.docker.testbed import image_name
from wanbench.harness.text import rate
from wanbench.workloads.comm.windows import in_flight_here

State = Literal["ok", "missing", "note"]
_GOVERNORS = Path("/sys/devices/system/cpu")
_ROUND_TRIPS_MS = (50, 150, 300)
_SYSTEMD = Path("/run/systemd/system")
_MODULES = Path("/lib/modules")
_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"  # of a clone; an installed package has none
_APPARMOR = "/etc/apparmor.d/wanbench"
_UDEV = """echo 'KERNEL=="tun", MODE="0666"' | sudo tee /etc/udev/rules.d/70-tun.rules"""
_AS_ROOT = "or run as root"
_RUN_AS_ROOT = 'sudo -E "$(command -v wanbench)" doctor  # run wanbench as root; nothing on the host changes'

# Runs in a separate process, which enters a private network and tries what a worker and a relay would do.
_TRY = """
import json, os
from wanbench.workloads.process import namespace, tun
report = {"namespace": None, "tun": None, "offload": False, "tcp": [], "priority": True}
try:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
except OSError:
    report["priority"] = False
try:
    namespace.enter_private_network()
except ValueError as error:
    report["namespace"] = str(error)
else:
    try:
        report["offload"] = tun.passes_segments(tun.open_tun("wan0", "10.77.0.1"))
    except ValueError as error:
        report["tun"] = str(error)
    for name in ("reno", "cubic", "bbr"):
        try:
            if report["tun"] is not None or not namespace.set_congestion("wan0", "10.77.0.1", name):
                namespace.set_tcp({"congestion": name})
            report["tcp"].append(name)
        except ValueError:
            pass
print(json.dumps(report))
"""


@dataclass(frozen=True)
class HostCheck:
    """One line of the doctor's report.

    Attributes:
        topic: what was checked. state: `missing` prevents something from working, `note` degrades it.
        text: the finding, for people. fix: lines for a shell, the best first. meanwhile: what works without the fix.
    """

    topic: str
    state: State
    text: str
    fix: str | None = None
    meanwhile: str | None = None


def examine() -> list[HostCheck]:
    """Run every check. This takes about two seconds and leaves nothing behind."""
    tried = _tried()
    checks = (_software, _namespaces, _tun, _netem, _tcp, _stream, _docker, _image, _processors, _governor, _priority)
    findings = [finding for check in checks if (finding := check(tried)) is not None]
    if can_run(findings):
        return findings
    # What works beside one missing part does not work beside all of them.
    return [replace(finding, meanwhile="--testbed virtual") if finding.meanwhile else finding for finding in findings]


def can_run(findings: list[HostCheck]) -> bool:
    """Return whether at least one testbed works with at least one emulator."""
    missing = {finding.topic for finding in findings if finding.state == "missing"}
    emulator = not {"TUN device", "netem"} <= missing
    workers = "namespaces" not in missing or not {"Docker", "image"} & missing
    return emulator and workers and "software" not in missing


def _tried() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _TRY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=child.environment(),
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise HostError(f"doctor: the trial process ended with status {done.returncode}: {last[0]}")
    return dict(json.loads(done.stdout))


def _software(_: dict[str, Any]) -> HostCheck:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return HostCheck("software", "missing", "torch is not installed", "make setup")
    return HostCheck("software", "ok", f"Python {platform.python_version()}, torch {torch}, Linux {platform.release()}")


def _namespaces(tried: dict[str, Any]) -> HostCheck:
    why = tried["namespace"]
    if why is None:
        how = "as root" if os.geteuid() == 0 else "without root"
        return HostCheck("namespaces", "ok", f"private networks can be created, {how}")
    problem, command = _split(why)
    meanwhile = "--testbed docker, if Docker works; --testbed virtual"
    return HostCheck("namespaces", "missing", problem, _allow_namespaces(why, command), meanwhile)


def _allow_namespaces(why: str, command: str | None) -> str:
    """Return the remedies, one per line: what weakens the whole host comes last, and says so."""
    if "AppArmor" in why:
        weaker = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        remark = "last resort: switches this protection off for every program on the host, until the next boot"
        return f"{_RUN_AS_ROOT}\n{_apparmor_profile()}\n{weaker}  # {remark}"
    if command is not None and "unprivileged_userns_clone" in command:
        return f"{_RUN_AS_ROOT}\n{command}  # lets every program on the host create namespaces, until the next boot"
    if command is not None:
        return f"{command}  # until the next boot{'' if os.geteuid() == 0 else f'; {_AS_ROOT}'}"
    if os.geteuid() != 0:
        return _RUN_AS_ROOT
    return "docker run --cap-add SYS_ADMIN --device /dev/net/tun IMAGE  # containers need this capability"


def _apparmor_profile() -> str:
    """Return the command that installs an AppArmor profile which lets this interpreter create user namespaces.

    It attaches to the interpreter because every process that creates a namespace is started as `sys.executable`. The
    syntax is that of AppArmor 4.0; it has not been tried on Ubuntu 24.04.
    """
    rule = f'profile wanbench "{os.path.realpath(sys.executable)}" flags=(unconfined) {{ userns, }}'
    text = f"'abi <abi/4.0>,' 'include <tunables/global>' {shlex.quote(rule)}"
    install = f"printf '%s\\n' {text} | sudo tee {_APPARMOR} && sudo apparmor_parser -r {_APPARMOR}"
    narrower = " (to narrow it: a venv created with --copies)" if os.path.islink(sys.executable) else ""
    return f"{install}  # once: allows every program of this Python interpreter{narrower}"


def _tun(tried: dict[str, Any]) -> HostCheck:
    why = choice.why_no_relay() or tried["tun"]
    works = "this user can open /dev/net/tun: the relay emulator works"
    if why is None and tried["offload"]:
        return HostCheck("TUN device", "ok", works)
    if why is None:
        slow = "but with single packets, about 0.5 Gbit/s per core: the kernel refuses segmentation offload"
        return HostCheck("TUN device", "note", f"{works}, {slow}")
    problem, _ = _split(why)
    is_refused = "denied" in why.lower() or "not permitted" in why.lower()
    allow = f"sudo chmod 0666 /dev/net/tun  # {_AS_ROOT}; to keep it: {_UDEV}"
    fix = allow if is_refused else _module("tun", "CONFIG_TUN")
    return HostCheck("TUN device", "missing", problem, fix, "--emulator netem, if the kernel has it; --testbed virtual")


def _netem(_: dict[str, Any]) -> HostCheck:
    why = choice.why_no_netem()
    if why is None:
        return HostCheck("netem", "ok", "this kernel has sch_netem: --emulator auto uses it")
    problem, command = _split(why)
    lacking = re.search(r"\((CONFIG_\w+)\): sudo modprobe (\w+)", why)
    fix = _module(lacking[2], lacking[1]) if lacking else command
    if fix is None and lacking:
        problem += ", and no module to load"
        if _SCRIPTS.is_dir():
            fix = "sh scripts/uml-run.sh wanbench doctor  # User-Mode Linux; install: sh scripts/setup-tests.sh kernel"
    return HostCheck("netem", "missing", problem, fix, "--emulator relay")


def _module(name: str, option: str) -> str | None:
    """Return the line that installs and loads a kernel module; None if there is none to load."""
    release = platform.release()
    load = f"sudo modprobe {name}  # {option}"
    if any((_MODULES / release).rglob(f"{name}.ko*")):
        return load
    match _distribution():
        case "ubuntu":
            return f"sudo apt-get install -y linux-modules-extra-{release} && {load}"
        case "fedora" | "rhel" | "centos":
            return f"sudo dnf install -y kernel-modules-extra && {load}"
    return load if (_MODULES / release).is_dir() else None


def _distribution() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release()["ID"]
    return ""


def _tcp(tried: dict[str, Any]) -> HostCheck | None:
    if tried["namespace"] is not None:
        return None
    host = content("/proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    text = f"the host uses {host}; private networks can use {', '.join(tried['tcp']) or 'none'}"
    if "reno" in tried["tcp"]:
        return HostCheck("TCP", "ok", text)
    return HostCheck(
        "TCP",
        "missing",
        text,
        'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="reno cubic"',
        "another congestion control: network.tcp in a spec, exec --congestion",
    )


def _stream(_: dict[str, Any]) -> HostCheck | None:
    """What the buffers of this host let one connection carry, outside of wanbench's own namespaces."""
    carried = in_flight_here()
    if carried is None:
        return None
    rates = [f"{rate(8e-3 * carried / ms)} at {ms} ms" for ms in _ROUND_TRIPS_MS]
    return HostCheck("one stream", "ok", f"this host's buffers let one TCP connection carry {', '.join(rates)}")


def _docker(_: dict[str, Any]) -> HostCheck:
    why = daemon.why_not()
    if why is None:
        return HostCheck("Docker", "ok", daemon.describe())
    problem, fix = _split(why)
    if "another kernel" in why or "remaps users" in why:
        fix = "docker compose run --rm wanbench doctor  # run wanbench in a container, too"
    elif "usermod" in why:
        fix = f"{fix}  # then log in again; {_AS_ROOT}"
    elif "no daemon" in why and shutil.which("dockerd", path=f"{os.defpath}:/usr/sbin:/sbin:/usr/local/bin") is None:
        fix = "sudo apt-get install -y docker.io  # Fedora: sudo dnf install -y moby-engine"
    elif "no daemon" in why and not _SYSTEMD.is_dir():
        fix = "sudo service docker start"
        if _SCRIPTS.is_dir():
            fix += "  # or for one command: sudo sh scripts/with-dockerd.sh wanbench doctor"
    return HostCheck("Docker", "missing", problem, fix, "--testbed netns")


def _image(_: dict[str, Any]) -> HostCheck | None:
    if daemon.why_not() is not None:
        return None
    name = image_name(None)
    try:
        with closing(daemon.Daemon()) as running:
            digest = running.image_id(name)
    except HostError:
        registry = "without a registry: sudo make base-image-from-debian && make image BASE=wanbench-base"
        build = f"make image  # in a clone of the repository; {registry}"
        fix = build if name == daemon.IMAGE else f"docker pull {name}"
        return HostCheck("image", "missing", f"--testbed docker has no image {name!r}", fix, "--testbed netns")
    return HostCheck("image", "ok", f"--testbed docker has its image: {name} ({digest.removeprefix('sha256:')[:12]})")


def _processors(_: dict[str, Any]) -> HostCheck:
    cores, memory = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = f"{cores} core{'s' * (cores > 1)}, {memory:.0f} GiB of memory"
    if cores < 2:
        meanwhile = "workloads by numbers, which only sleep; --testbed virtual"
        return HostCheck("processors", "note", f"{text}: workers, emulator and controller share it", None, meanwhile)
    return HostCheck("processors", "ok", text)


def _governor(_: dict[str, Any]) -> HostCheck | None:
    governors = {content(str(path)) for path in _GOVERNORS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    slow = sorted(str(name) for name in governors - {"performance", None})
    if not slow:
        return None
    return HostCheck(
        "governor",
        "note",
        f"processors change their speed ({', '.join(slow)}), so step times vary more",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "more repetitions: --set run.repeats=5",
    )


def _priority(tried: dict[str, Any]) -> HostCheck:
    if tried["priority"]:
        return HostCheck("priority", "ok", "the relay has priority over the workers")
    allow = 'echo "$USER - nice -20" | sudo tee /etc/security/limits.d/90-wanbench.conf  # then log in again'
    return HostCheck(
        "priority",
        "note",
        "no right to a higher priority: when processors are busy, the relay can deliver packets a few ms late",
        None if os.geteuid() == 0 else allow,  # root is refused only by its container
        "repetitions with late packets are repeated",
    )


def _split(why: str) -> tuple[str, str | None]:
    """Split an error line into its problem and the command of its remedy, without its alternative (`or use --...`)."""
    text = re.sub(r"[;,] or use --\w+ \w+$", "", why).removeprefix("netem: ").removeprefix("docker: ")
    problem, mark, advice = text.partition("; ")
    if not mark:
        problem, mark, advice = text.partition("): ")
        problem += mark.rstrip(": ")
    command = re.search(r"(?:sudo|docker|make) [^`;,)]*", advice)
    return problem, command[0].strip() if command else None
