"""What this host can do, one finding a line: the exact fix for what is missing, and what works meanwhile."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from harness.emulators import choice
from harness.errors import HostError
from harness.testbeds import docker_host

State = Literal["ok", "missing", "note"]
_GOVERNORS = Path("/sys/devices/system/cpu")
_UDEV = """echo 'KERNEL=="tun", MODE="0666"' | sudo tee /etc/udev/rules.d/70-tun.rules"""

# Runs in a process of its own, which gives itself a private network and tries what a worker and a relay would do.
_TRY = """
import json, os
from workloads import namespace
found = {"namespace": None, "tcp": [], "realtime": True}
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError:
    found["realtime"] = False
try:
    namespace.enter_private_network()
except ValueError as error:
    found["namespace"] = str(error)
else:
    for name in ("reno", "cubic", "bbr"):
        try:
            namespace.set_tcp({"congestion": name})
            found["tcp"].append(name)
        except ValueError:
            pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        topic: what was looked at. state: `missing` keeps something from working, `note` makes it worse.
        found: what is there, in words. fix: what to do, if anything. meanwhile: what works without it.
    """

    topic: str
    state: State
    found: str
    fix: str | None = None
    meanwhile: str | None = None


def examine() -> list[Finding]:
    """Look at everything; takes about two seconds and leaves nothing behind."""
    tried = _tried()
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (
        _software,
        lambda: _namespaces(tried),
        _tun,
        _netem,
        lambda: _tcp(tried),
        _docker,
        _processors,
        lambda: _priority(tried),
    )
    return [finding for part in parts for finding in part()]


def can_run(findings: list[Finding]) -> bool:
    """True if at least one testbed works with at least one emulator."""
    missing = {finding.topic for finding in findings if finding.state == "missing"}
    emulator = not {"TUN device", "netem"} <= missing
    return emulator and not {"namespaces", "Docker"} <= missing and "software" not in missing


def _tried() -> dict[str, Any]:
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-P", "-c", _TRY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise HostError(f"doctor: the trial process ended with status {done.returncode}: {said[0]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _software() -> Iterator[Finding]:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        yield Finding("software", "missing", "torch is not installed", "make setup")
        return
    yield Finding("software", "ok", f"Python {platform.python_version()}, torch {torch}, Linux {platform.release()}")


def _namespaces(tried: dict[str, Any]) -> Iterator[Finding]:
    why = tried["namespace"]
    if why is None:
        how = "as root" if os.geteuid() == 0 else "without root"
        yield Finding("namespaces", "ok", f"private networks can be made, {how}")
        return
    found, fix = _split(why)
    yield Finding("namespaces", "missing", found, fix, "--testbed docker, where Docker works")


def _tun() -> Iterator[Finding]:
    why = choice.why_no_relay()
    if why is None:
        yield Finding("TUN device", "ok", "/dev/net/tun is open to this user: the relay emulator works")
        return
    found, fix = _split(why)
    lasting = f"{fix}; to keep it: {_UDEV}" if "denied" in found else fix
    yield Finding("TUN device", "missing", found, lasting, "--emulator netem, where the kernel has it")


def _netem() -> Iterator[Finding]:
    why = choice.why_no_netem()
    if why is None:
        yield Finding("netem", "ok", "this kernel has sch_netem: --emulator auto takes it")
        return
    found, fix = _split(why)
    yield Finding("netem", "missing", found, fix, "--emulator relay")


def _tcp(tried: dict[str, Any]) -> Iterator[Finding]:
    host = _read("/proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    usable = ", ".join(tried["tcp"]) or "none"
    text = f"the host uses {host}; private networks may use {usable}"
    if "reno" in tried["tcp"] or tried["namespace"] is not None:
        yield Finding("TCP", "ok", text)
    else:
        yield Finding("TCP", "missing", text, "sudo modprobe tcp_reno, or set network.tcp.congestion in the spec")


def _docker() -> Iterator[Finding]:
    why = docker_host.why_not()
    if why is None:
        yield Finding("Docker", "ok", docker_host.describe())
        return
    found, fix = _split(why)
    yield Finding("Docker", "missing", found, fix, "--testbed netns")


def _processors() -> Iterator[Finding]:
    cores, memory = os.cpu_count() or 1, _memory_gib()
    text = f"{cores} cores, {memory:.0f} GiB of memory"
    if cores < 2:
        yield Finding("processors", "note", text, "two cores or more", "fewer repetitions side by side: --jobs 1")
    else:
        yield Finding("processors", "ok", text)
    governors = {_read(str(path)) for path in _GOVERNORS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    slow = sorted(str(name) for name in governors - {"performance", None})
    if slow:
        yield Finding(
            "governor",
            "note",
            f"processors change their speed ({', '.join(slow)}): steps vary more",
            "sudo cpupower frequency-set -g performance",
        )


def _priority(tried: dict[str, Any]) -> Iterator[Finding]:
    if tried["realtime"]:
        yield Finding("priority", "ok", "the relay runs ahead of the workers (real-time priority)")
        return
    yield Finding(
        "priority",
        "note",
        "no right to real-time priority: with busy processors the relay delivers packets up to some ms late",
        "ulimit -r 1, after adding `USER - rtprio 1` to /etc/security/limits.conf; or run as root",
        "repetitions with late packets are measured again",
    )


def _split(why: str) -> tuple[str, str | None]:
    """What is wrong, and the remedy, of an error line; what to use instead is said apart."""
    text = re.sub(r"[;,] or use --\w+ \w+$", "", why).removeprefix("netem: ").removeprefix("docker: ")
    found, mark, fix = text.partition("; ")
    if not mark:
        found, mark, fix = text.partition("): ")
        found += mark.rstrip(": ")
    return found, fix or None


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
